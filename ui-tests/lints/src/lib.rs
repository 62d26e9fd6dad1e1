//! Functions in which a lint finds something. The test marks them by a feature, and compares what Clippy says with and without the marks.

#[cfg(feature = "marked")]
warpline::namespace!("lints", "functions that lints complain about");

pub struct Stream;

pub struct Layer {
    pub rows: u32,
    pub names: Vec<String>,
    stream: Stream,
}

impl Layer {
    /// Style.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.style", fields(n = self.rows)))]
    pub fn style(&self, values: &Vec<u32>) -> bool {
        let text = format!("text");
        println!("{}", text);
        if values.len() == 0 {
            return false;
        }
        let mut sum = 0;
        for i in 0..values.len() {
            sum = sum + values[i];
        }
        return sum > self.rows;
    }

    /// Complexity.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.complexity"))]
    pub fn complexity(&self, name: Option<&str>) -> Option<usize> {
        let first = self.names.iter().filter(|one| one.len() > 1).next().map(|one| one.clone());
        let same = first.clone().map(|one| one);
        let length = match name {
            Some(name) => Some(name.len()),
            None => None,
        };
        drop(same);
        length
    }

    /// Nothing of `self`.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.unused"))]
    pub fn unused(&self, names: Vec<String>, left: u32) -> usize {
        names.len()
    }

    /// A parameter that the mark names, and one that nothing names.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.named", fields(rows = rows)))]
    pub fn named(&self, rows: u32, columns: u32) -> u32 {
        let _ = rows;
        self.rows
    }

    /// Panics without a word.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.panics"))]
    pub fn panics(&self, at: usize) -> String {
        if at > 3 {
            panic!("{at}");
        }
        self.names[at].clone()
    }

    /// Never ends.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.recursion"))]
    pub fn recursion(&self, n: u32) -> u32 {
        self.recursion(n + 1)
    }

    /// Returns nothing.
    #[cfg_attr(feature = "marked", warpline::host_zone("lints.nothing"))]
    pub fn nothing(&mut self) {
        use std::mem::take;
        self.names = take(&mut self.names);
        self.names.push("text".to_string());
        self.names.clear()
    }
}

/// Not done.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.later"))]
pub fn later() -> u32 {
    todo!()
}

/// Not done either.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.never"))]
pub fn never() -> u32 {
    unimplemented!("never")
}

/// Behind `return`.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.behind"))]
pub fn behind(n: u32) -> u32 {
    return n;
    let m = n + 1;
    m
}

/// Waits for nothing.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.waits"))]
pub async fn waits(n: u32) -> u32 {
    let m = n * 2;
    m
}

/// Numbers.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.numbers"))]
pub fn numbers(n: i64, x: f64) -> u32 {
    let mut mixed = n as u32;
    if x == 1.0 {
        mixed += 1;
    }
    unsafe { std::hint::assert_unchecked(mixed > 0) };
    mixed / 3
}

/// Many ways.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.ways"))]
pub fn ways(n: u32) -> u32 {
    let mut m = 0;
    while m < n {
        if n == 10 || m == 11 {
            m += 10;
        }
        if n == 11 || m == 12 {
            m += 11;
        }
        if n == 12 || m == 13 {
            m += 12;
        }
        if n == 13 || m == 14 {
            m += 13;
        }
        if n == 14 || m == 15 {
            m += 14;
        }
        if n == 15 || m == 16 {
            m += 15;
        }
        if n == 16 || m == 17 {
            m += 16;
        }
        if n == 17 || m == 18 {
            m += 17;
        }
        if n == 18 || m == 19 {
            m += 18;
        }
        if n == 19 || m == 20 {
            m += 19;
        }
        if n == 20 || m == 21 {
            m += 20;
        }
        if n == 21 || m == 22 {
            m += 21;
        }
        if m % 2 == 0 {
            if m % 3 == 0 {
                m += 1;
            } else if m % 5 == 0 {
                m += 2;
            }
        }
        for i in 0..m {
            if i > 3 {
                m += i;
            } else if i > 2 {
                m += 3;
            } else if i == 9 {
                continue;
            }
        }
        match m {
            0 => m += 1,
            1 if n > 3 => m += 2,
            2 | 3 => m += 3,
            4 => {
                if n > 7 {
                    break;
                }
            }
            _ => m += 4,
        }
        if n > 8 && m > 3 || n < 2 && m < 9 {
            loop {
                m += 1;
                if m > 3 {
                    break;
                }
            }
        }
        if m > 4 {
            if n > 4 {
                m += 1;
            }
        } else {
            m += 9;
        }
    }
    m
}

/// Of two generics.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.generic"))]
pub fn generic<T, U: std::fmt::Debug>(value: U) -> String {
    let shown = format!("{:?}", value);
    shown
}

/// Fails with a large error.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.fails", err))]
pub fn fails(layer: &Layer, text: &str) -> Result<u32, String> {
    if text.is_empty() {
        return Err("empty".into());
    }
    let n = text.parse::<u32>().map_err(|_| format!("no number"))?;
    let m: u32 = match layer.names.first() {
        Some(first) => first.parse().map_err(|error: std::num::ParseIntError| error.to_string())?,
        None => return Err(String::from("none")),
    };
    Ok(Ok::<u32, String>(n + m)?)
}

/// Never fails.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.right", err))]
pub fn right(n: u32, unused: Vec<u32>) -> Result<u32, String> {
    let m = n.clone();
    return Ok(m);
}

/// Unwraps.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.unwraps", err))]
pub fn unwraps(layer: &Layer) -> Result<usize, String> {
    let first = layer.names.first().unwrap();
    let second = layer.names.get(1).expect("two");
    eprintln!("{}", first);
    Ok(first.len() + second.len())
}

/// A future that fails.
#[cfg_attr(feature = "marked", warpline::host_zone("lints.future", err))]
pub async fn future(layer: &Layer) -> Result<usize, String> {
    let n = layer.names.iter().map(|name| name.len()).collect::<Vec<_>>().len();
    if n == 0 {
        return Err("none".to_owned());
    } else {
        return Ok(n);
    }
}
