"""DxDispatch models: JSON files of buffers, operators and commands."""
