"""updates"""
