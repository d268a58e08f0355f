"""`python -m oomph.ranks.deepspeed`: DeepSpeed's launcher as a module that is imported, so that the hook sees it."""

if __name__ == "__main__":
    from deepspeed.launcher import launch

    launch.main()
