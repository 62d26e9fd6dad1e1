//! The colors of slices: the format has no place for a color of its own, only for the names that `chrome://tracing` reserves.
//!
//! The values are those of `tracing/base/color_scheme.html` in the Catapult repository. A name whose spelling differs between versions
//! of the viewer, and a name with the value of another one, are left out.

/// Returns the reserved name whose color is nearest to `color` (`0xRRGGBB`).
pub(super) fn reserved_name(color: u32) -> &'static str {
    let nearest = RESERVED.iter().min_by_key(|(_, reserved)| distance(color, *reserved));
    nearest.map_or("generic_work", |(name, _)| name)
}

/// Returns how different two colors look: the squared distance, with weights for the eye that depend on the amount of red.
fn distance(a: u32, b: u32) -> u32 {
    let parts = |color: u32| [color >> 16 & 0xff, color >> 8 & 0xff, color & 0xff];
    let ([red, green, blue], [other_red, other_green, other_blue]) = (parts(a), parts(b));
    let mean = (red + other_red) / 2;
    let square = |a: u32, b: u32| a.abs_diff(b).pow(2);
    (512 + mean) * square(red, other_red) + 1024 * square(green, other_green) + (767 - mean) * square(blue, other_blue)
}

const RESERVED: [(&str, u32); 32] = [
    ("thread_state_uninterruptible", 0xb6_7d8f),
    ("thread_state_iowait", 0xff_8c00),
    ("thread_state_running", 0x7e_c894),
    ("thread_state_runnable", 0x85_a0d2),
    ("thread_state_sleeping", 0xf0_f0f0),
    ("thread_state_unknown", 0xc7_9b7d),
    ("background_memory_dump", 0x00_b4b4),
    ("light_memory_dump", 0x00_00b4),
    ("detailed_memory_dump", 0xb4_00b4),
    ("vsync_highlight_color", 0x00_00ff),
    ("generic_work", 0x7d_7d7d),
    ("good", 0x00_7d00),
    ("bad", 0xb4_7d00),
    ("terrible", 0xb4_0000),
    ("black", 0x00_0000),
    ("grey", 0xdd_dddd),
    ("white", 0xff_ffff),
    ("yellow", 0xff_ff00),
    ("olive", 0x64_6400),
    ("rail_response", 0x43_87fd),
    ("rail_animation", 0xf4_4a3f),
    ("rail_idle", 0xee_8e00),
    ("rail_load", 0x0d_a861),
    ("startup", 0xe6_e600),
    ("heap_dump_stack_frame", 0x80_8080),
    ("heap_dump_child_node_arrow", 0xcc_6600),
    ("cq_build_running", 0xff_ff77),
    ("cq_build_passed", 0x99_ee66),
    ("cq_build_failed", 0xee_8888),
    ("cq_build_abandoned", 0xbb_bbbb),
    ("cq_build_attempt_passed", 0x67_da23),
    ("cq_build_attempt_failed", 0xc5_5151),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_gets_the_nearest_reserved_name() {
        for (name, color) in RESERVED {
            assert_eq!(reserved_name(color), name);
        }
        for (color, name) in [
            (0xff_0000, "terrible"),
            (0x20_60c0, "rail_response"),
            (0x76_b900, "cq_build_attempt_passed"),
            (0x01_0101, "black"),
            (0xfe_fffe, "white"),
            (0x00_0080, "light_memory_dump"),
        ] {
            assert_eq!(reserved_name(color), name, "{color:06x}");
        }
    }
}
