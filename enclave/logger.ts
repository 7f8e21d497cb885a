/**
 * What may stand in a log line beside its time and event: short facts. No request, answer or
 * credential ever does.
 */
export type LogFacts = Readonly<Record<string, string | number | boolean | null>>

/** Writes one event. */
export type EventLog = (level: 'info' | 'warn' | 'error', event: string, facts?: LogFacts) => void

/** A log of one JSON object a line: { time (ISO 8601), level, event, …facts }. */
export function createEventLog(write: (line: string) => void, now: () => number): EventLog {
  return (level, event, facts = {}) => write(formatLine(now(), level, event, facts))
}

/** A line of that log, at Unix milliseconds. */
export function formatLine(atMs: number, ...[level, event, facts]: Parameters<EventLog>): string {
  return `${JSON.stringify({ time: new Date(atMs).toISOString(), level, event, ...facts })}\n`
}

/**
 * What may be logged of any error: its name, its code and where it was thrown. Not its message:
 * those of parsers and network errors repeat what they were given.
 */
export function describeError(error: unknown): LogFacts {
  if (!(error instanceof Error)) return { error: typeof error }
  const code = 'code' in error && typeof error.code === 'string' ? error.code : null
  const frames = (error.stack ?? '').split('\n').filter((line) => /^ {4}at /.test(line))
  return { error: error.name, code, at: frames.slice(0, FRAMES_MAX).join('\n') }
}

const FRAMES_MAX = 12
