module moonrail

go 1.19
