/**
 * Facts of a log line besides time and event. They are short, and contain no request, answer or
 * credential.
 */
export type LogFacts = Readonly<Record<string, string | number | boolean | null>>

export type EventLog = (level: 'info' | 'warn' | 'error', event: string, facts?: LogFacts) => void

/** A log with one JSON object per line: { time (ISO 8601), level, event, …facts }. */
export function createEventLog(write: (line: string) => void, now: () => number): EventLog {
  return (level, event, facts = {}) => write(formatLine(now(), level, event, facts))
}

export function formatLine(atMs: number, ...[level, event, facts]: Parameters<EventLog>): string {
  return `${JSON.stringify({ time: new Date(atMs).toISOString(), level, event, ...facts })}\n`
}

/**
 * Returns the name and the code of any error, and where it was thrown. It leaves out the message,
 * because messages of parsers and network errors repeat their input.
 */
export function describeError(error: unknown): LogFacts {
  if (!(error instanceof Error)) return { error: typeof error }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : null
  const frames = (error.stack ?? '').split('\n').filter((line) => /^ {4}at /.test(line))
  return { error: error.name, code, at: frames.slice(0, FRAMES_MAX).join('\n') }
}

const FRAMES_MAX = 12
