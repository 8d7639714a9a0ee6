"""A small node for the tests of the command line: a topic, parameters and a service."""

from __future__ import annotations

import contextlib

import rclpy
from rcl_interfaces.msg import IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from std_msgs.msg import Float32MultiArray, Int32
from std_srvs.srv import Trigger


class Talker(Node):
    def __init__(self) -> None:
        super().__init__("talker")
        limits = ParameterDescriptor(
            description="publishing rate",
            integer_range=[IntegerRange(from_value=1, to_value=100, step=1)],
        )
        rate = self.declare_parameter("rate", 50, limits).value
        self.declare_parameter("name", "bob")
        self.declare_parameter("gains.kp", [1.0, 2.5])
        self.add_on_set_parameters_callback(self._check)
        self._count = 0
        self._counter = self.create_publisher(Int32, "count", 10)
        self._values = self.create_publisher(Float32MultiArray, "values", 10)
        self.create_service(Trigger, "reset", self._reset)
        self.create_timer(1.0 / rate, self._publish)

    def _check(self, parameters: list) -> SetParametersResult:
        for parameter in parameters:
            if parameter.name == "name" and parameter.value == "bad":
                return SetParametersResult(successful=False, reason="bad is refused")
        return SetParametersResult(successful=True)

    def _publish(self) -> None:
        self._counter.publish(Int32(data=self._count))
        self._values.publish(Float32MultiArray(data=[0.5] * 200))
        self._count += 1

    def _reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = True
        response.message = f"was {self._count}"
        self._count = 0
        return response


def main() -> None:
    rclpy.init()
    node = Talker()
    with contextlib.suppress(KeyboardInterrupt, ExternalShutdownException):
        print("talker is ready", flush=True)
        rclpy.spin(node)
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
