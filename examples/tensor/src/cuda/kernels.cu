// The operations on a GPU, one kernel each. ops.rs and packed.rs say what they compute, have checked every shape, and
// launch them: with the matrices in the order of the operation's own, then the sizes.
//
// NVRTC compiles this file when the program starts; it has no header. All matrices have less than 2^31 elements.

// As on.rs launches them.
constexpr unsigned THREADS = 256;
constexpr unsigned TILE = 16;

struct Tokens {
    unsigned at[256];
};

struct Group {
    float scale;
    unsigned char weights[16];
};

__device__ float minus_infinity() {
    return __int_as_float(0xff800000);
}

// What joins the values of all threads of a block, for each of them.
template <typename Join>
__device__ float over_block(float value, Join join) {
    __shared__ float values[THREADS];
    values[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) values[threadIdx.x] = join(values[threadIdx.x], values[threadIdx.x + half]);
        __syncthreads();
    }
    float joined = values[0];
    __syncthreads();
    return joined;
}

__device__ float sum_over_block(float value) {
    return over_block(value, [](float a, float b) { return a + b; });
}

__device__ float max_over_block(float value) {
    return over_block(value, [](float a, float b) { return fmaxf(a, b); });
}

__device__ unsigned thread() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}

// A thread for each element of the tokens' rows.
extern "C" __global__ void embed(const float *table, float *out, unsigned cols, unsigned first, unsigned count,
                                 Tokens tokens) {
    unsigned i = thread();
    if (i >= count * cols) return;
    out[first * cols + i] = table[tokens.at[i / cols] * cols + i % cols];
}

// A block for each tile of the output. It brings a tile of `a` and one of `b` at a time to where all its threads reach
// them.
extern "C" __global__ void matmul(const float *a, const float *b, float *out, unsigned m, unsigned k, unsigned n) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    unsigned x = threadIdx.x, y = threadIdx.y;
    unsigned row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;
    float sum = 0.0f;
    for (unsigned first = 0; first < k; first += TILE) {
        a_tile[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;
        b_tile[y][x] = first + y < k && col < n ? b[(first + y) * n + col] : 0.0f;
        __syncthreads();
        for (unsigned p = 0; p < TILE; p++) sum += a_tile[y][p] * b_tile[p][x];
        __syncthreads();
    }
    if (row < m && col < n) out[row * n + col] = sum;
}

// A block for each row.
extern "C" __global__ void layernorm(const float *x, float *out, unsigned cols) {
    x += blockIdx.x * cols;
    out += blockIdx.x * cols;
    float sum = 0.0f, squares = 0.0f;
    for (unsigned col = threadIdx.x; col < cols; col += THREADS) sum += x[col];
    float mean = sum_over_block(sum) / cols;
    for (unsigned col = threadIdx.x; col < cols; col += THREADS) squares += (x[col] - mean) * (x[col] - mean);
    float scale = 1.0f / sqrtf(sum_over_block(squares) / cols + 1e-5f);
    for (unsigned col = threadIdx.x; col < cols; col += THREADS) out[col] = (x[col] - mean) * scale;
}

// A thread for each score.
extern "C" __global__ void scores(const float *qkv, float *out, unsigned heads, unsigned tokens, unsigned width) {
    unsigned i = thread();
    if (i >= heads * tokens * tokens) return;
    unsigned head = i / tokens / tokens, token = i / tokens % tokens, other = i % tokens;
    unsigned part = width / heads;
    const float *query = qkv + token * 3 * width + head * part;
    const float *key = qkv + other * 3 * width + width + head * part;
    float product = 0.0f;
    for (unsigned c = 0; c < part; c++) product += query[c] * key[c];
    out[i] = other <= token ? product / sqrtf(part) : minus_infinity();
}

// A block for each row.
extern "C" __global__ void softmax(float *x, unsigned cols) {
    x += blockIdx.x * cols;
    float largest = minus_infinity(), sum = 0.0f;
    for (unsigned col = threadIdx.x; col < cols; col += THREADS) largest = fmaxf(largest, x[col]);
    largest = max_over_block(largest);
    for (unsigned col = threadIdx.x; col < cols; col += THREADS) sum += x[col] = expf(x[col] - largest);
    sum = sum_over_block(sum);
    for (unsigned col = threadIdx.x; col < cols; col += THREADS) x[col] /= sum;
}

// A thread for each element of the output.
extern "C" __global__ void attend(const float *weights, const float *qkv, float *out, unsigned heads, unsigned tokens,
                                  unsigned width) {
    unsigned i = thread();
    if (i >= tokens * width) return;
    unsigned token = i / width, col = i % width, head = col / (width / heads);
    const float *weight = weights + (head * tokens + token) * tokens;
    float sum = 0.0f;
    for (unsigned other = 0; other < tokens; other++) sum += weight[other] * qkv[other * 3 * width + 2 * width + col];
    out[i] = sum;
}

// A thread for each element.
extern "C" __global__ void gelu(float *x, unsigned n) {
    unsigned i = thread();
    if (i >= n) return;
    float v = x[i];
    x[i] = 0.5f * v * (1.0f + tanhf(0.7978846f * (v + 0.044715f * v * v * v)));
}

// A thread for each element.
extern "C" __global__ void add(const float *x, float *out, unsigned n) {
    unsigned i = thread();
    if (i < n) out[i] += x[i];
}

// A thread for each weight.
extern "C" __global__ void unpack(const Group *groups, float *out, unsigned n) {
    unsigned i = thread();
    if (i >= n) return;
    const Group *group = groups + i / 32;
    unsigned byte = group->weights[i % 32 / 2];
    out[i] = ((i % 2 ? byte >> 4 : byte & 15) - 8.0f) * group->scale;
}

// Where the element of a token and a column is, with the heads of each sequence below one another.
__device__ unsigned place(unsigned heads, unsigned tokens, unsigned width, unsigned token, unsigned col) {
    unsigned part = width / heads;
    unsigned row = (token / tokens * heads + col / part) * tokens + token % tokens;
    return row * part + col % part;
}

// A thread for each element of the input.
extern "C" __global__ void split_heads(const float *qkv, float *queries, float *keys, float *values, unsigned heads,
                                       unsigned tokens, unsigned width, unsigned n) {
    unsigned i = thread();
    if (i >= n) return;
    unsigned token = i / (3 * width), col = i % (3 * width);
    float *out = col < width ? queries : col < 2 * width ? keys : values;
    out[place(heads, tokens, width, token, col % width)] = qkv[i];
}

// A thread for each element of the output.
extern "C" __global__ void join_heads(const float *apart, float *out, unsigned heads, unsigned tokens, unsigned width,
                                      unsigned n) {
    unsigned i = thread();
    if (i < n) out[i] = apart[place(heads, tokens, width, i / width, i % width)];
}
