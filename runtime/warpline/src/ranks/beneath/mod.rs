//! Folders and files below the folder of all ranks, without following links: on a shared disk, another user may have put a link there that leads
//! to a file of this one. Where the folder itself is, the user says, so links to it are followed. Called by `writer` and `progress`, through
//! `identity`.

#[cfg_attr(not(unix), path = "elsewhere.rs")]
mod system;

use std::io;

pub(super) use system::Beneath;

fn is_a_link() -> io::Error {
    io::Error::other(
        "is a link, and links below the folder of `ranks` are not followed; remove it, or name the folder that it leads to",
    )
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_to_the_folder_and_nowhere_below_it() {
        let root = std::env::temp_dir().join(format!("warpline-beneath-{}", std::process::id()));
        fs::create_dir_all(root.join("ranks/steps")).expect("a folder");
        fs::create_dir(root.join("home")).expect("a folder");
        fs::write(root.join("home/mine"), "mine").expect("a file");
        symlink(root.join("ranks"), root.join("scratch")).expect("a link");
        symlink(root.join("home"), root.join("ranks/stages")).expect("a link");
        symlink(root.join("home/mine"), root.join("ranks/steps/.new")).expect("a link");
        symlink(root.join("home/none"), root.join("ranks/steps/gone")).expect("a link");
        let ranks = Beneath::root(&root.join("scratch")).expect("the user named it");
        let said = ranks.enter("stages").expect_err("a link").to_string();
        assert!(said.starts_with("is a link, and links below the folder of `ranks` are not followed"), "{said}");
        let steps = ranks.enter("steps").expect("a folder");
        assert!(steps.create(".new").is_err() && steps.file(".new").is_err() && steps.create("gone").is_err());
        assert!(steps.has("gone"), "a link that leads nowhere is in the way, too");
        steps.remove(".new").expect("the link");
        assert!(steps.create(".new").is_ok() && !steps.has("new"));
        steps.rename(".new", "new").expect("a name");
        assert_eq!(
            ranks.enter("new").and_then(|new| new.enter("deeper")).expect("folders").path(),
            root.join("scratch/new/deeper")
        );
        assert!(root.join("ranks/steps/new").exists() && root.join("ranks/new/deeper").is_dir());
        assert_eq!(fs::read(root.join("home/mine")).expect("a file"), b"mine");
        assert_eq!(fs::read_dir(root.join("home")).expect("a folder").count(), 1);
        fs::remove_dir_all(root).expect("a folder");
    }
}
