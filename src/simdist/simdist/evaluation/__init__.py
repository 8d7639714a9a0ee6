"""Trials in closed loop, without ROS: the same core objects that the nodes run."""
