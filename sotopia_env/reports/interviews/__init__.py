"""AgentSense's measures of recorded interviews: goals by view, private information, sensitivity to profiles, roles."""

from sotopia_env.reports.interviews.output import interviews_report
from sotopia_env.reports.interviews.report import InterviewReport, interview_report, report_runs

__all__ = ["InterviewReport", "interview_report", "interviews_report", "report_runs"]
