"""What must survive: tables, the write-engine recipe, migrations, and the repository of the core's entities."""
