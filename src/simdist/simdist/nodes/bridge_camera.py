"""The simulated depth camera of the bridge."""

from __future__ import annotations

from rclpy.node import Node
from sensor_msgs.msg import CameraInfo, Image

from simdist.nodes import convert
from simdist.nodes.parameters import parameter
from simdist.nodes.qos import publisher
from simdist.simulation.depth import DepthCamera
from simdist.simulation.stand_in import StandIn


class BridgeCamera:
    """Renders and publishes depth images at a parameter's rate; 0 is off."""

    def __init__(self, node: Node, robot: StandIn) -> None:
        rate = parameter(
            node, "depth_rate", 0.0, "Hz of the simulated depth camera; 0: off", low=0.0, high=60.0
        )
        width = parameter(node, "depth_width", 160, "pixels", low=16, high=1280)
        height = parameter(node, "depth_height", 120, "pixels", low=16, high=960)
        self._robot = robot
        self._camera: DepthCamera | None = None
        if rate == 0.0:
            return
        camera = DepthCamera(robot.simulation, width, height)
        if camera.backend == "off":
            # It has warned why; the robot walks by its height scan.
            return
        self._camera = camera
        self._period_ns = round(1e9 / rate)
        self._next_ns = 0
        self._image = publisher(node, "depth/image_rect_raw")
        self._info = publisher(node, "depth/camera_info")
        self._info_message = _camera_info(camera)

    def publish_if_due(self) -> None:
        stamp = self._robot.now_ns
        if self._camera is None or stamp < self._next_ns:
            return
        self._next_ns = stamp + self._period_ns
        depth = self._camera.render()
        if depth is None:
            return
        header = convert.header(stamp, "depth_optical")
        self._info_message.header = header
        self._image.publish(
            Image(
                header=header,
                height=depth.shape[0],
                width=depth.shape[1],
                encoding="32FC1",
                step=4 * depth.shape[1],
                data=convert.raw_bytes(depth),
            )
        )
        self._info.publish(self._info_message)


def _camera_info(camera: DepthCamera) -> CameraInfo:
    width, height, focal = camera.width, camera.height, camera.focal_length
    cx, cy = (width - 1) / 2, (height - 1) / 2
    return CameraInfo(
        width=width,
        height=height,
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[focal, 0.0, cx, 0.0, focal, cy, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[focal, 0.0, cx, 0.0, 0.0, focal, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
    )
