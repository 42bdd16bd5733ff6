"""Reports as self-contained HTML files with embedded images. Everything but `report_file` is pure."""
