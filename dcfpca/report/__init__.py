"""Reports as self-contained HTML files with embedded images. Everything but `write_report` is pure."""
