"""Reports for people: one self-contained HTML file each, with its pictures inside. Pure: from figures to text."""
