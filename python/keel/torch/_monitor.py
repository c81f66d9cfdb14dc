class Monitor:
    pass
