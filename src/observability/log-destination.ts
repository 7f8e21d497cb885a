import { type DestinationStream, pino } from 'pino'

/** Gives where a process logs: standard error, readable on a terminal, else a JSON object a line. */
export async function openLogDestination(): Promise<DestinationStream> {
  if (!process.stderr.isTTY) return pino.destination({ dest: 2, sync: true })
  const { default: pretty } = await import('pino-pretty')
  return pretty({ destination: 2, sync: true, translateTime: 'SYS:HH:MM:ss.l' })
}
