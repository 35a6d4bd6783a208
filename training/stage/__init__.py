"""What all stages share: settings, directories, access to models, the frame of a script."""
