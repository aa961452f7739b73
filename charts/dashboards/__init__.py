"""The dashboards of Grafana, described once: their JSON and their page are generated from this.

python -m charts.dashboards [--verify]
"""
