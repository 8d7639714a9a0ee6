"""A private stand-in for the `ros2` command line and `ros2 launch`.

Used only where ROS 2 comes from Python wheels, which have neither. Where `launch_ros` can be
imported the real tools are there, and nothing in this package is put on the path.
"""
