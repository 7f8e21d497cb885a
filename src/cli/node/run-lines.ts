import { printable } from '#attestation/report/printable.ts'
import { withSpeed } from './describe-node.ts'
import { countText, lengthText, millisecondsText, speedText } from './figures.ts'

/** A line of the log. The texts from the gateway and the backend are not trusted. */
type Entry = Readonly<Record<string, unknown>>

type RunNode = {
  readonly gatewayUrl: string
  /** Null if only the node's id is known. */
  readonly nodeName: string | null
}

/**
 * Converts each JSON line of an agent's log to a sentence. Remembers speeds, and shows them when
 * the node is connected.
 */
export function createRunLines(node: RunNode): (line: string) => string {
  const speeds = new Map<string, number>()
  return (line) => {
    const entry = parseEntry(line)
    if (entry === null) return line
    const { model, tokens_per_second: speed } = entry
    if (typeof model === 'string' && typeof speed === 'number') speeds.set(model, speed)
    const sentence =
      SENTENCES[String(entry.msg)]?.(entry, { ...node, speeds }) ?? describeOther(entry)
    const mark = entry.level === 'warn' || entry.level === 'error' ? `${entry.level}: ` : ''
    return `${clock(entry)}  ${mark}${sentence}\n`
  }
}

type Context = RunNode & { readonly speeds: ReadonlyMap<string, number> }

/** For each message in the log: a function that writes the sentence. */
const SENTENCES: Readonly<Record<string, (entry: Entry, context: Context) => string>> = {
  'node created': (entry) => `Created node ${named(entry)}. ${textOf(entry, 'file')} keeps its id.`,
  'node found by its name': (entry) =>
    `Found node ${named(entry)} in the account. ${textOf(entry, 'file')} keeps its id.`,
  'the kept node is gone': (entry) =>
    `The account of this key has no node ${textOf(entry, 'node_id')}, which ${textOf(entry, 'file')} names.`,
  'agent starts': (entry) => `The inference server is ${textOf(entry, 'backend')}.`,
  'hardware saved': () => 'The gateway now has the description of this machine.',
  'benchmark begins': (entry) =>
    `Measuring ${textOf(entry, 'model')}, for about ${millisecondsText(numberOf(entry, 'duration_ms'))}.`,
  'benchmark known': (entry) =>
    `${textOf(entry, 'model')} was measured before: ${speedText(numberOf(entry, 'tokens_per_second'))}.`,
  'benchmark ended': (entry) =>
    `${textOf(entry, 'model')}: ${speedText(numberOf(entry, 'tokens_per_second'))}, ` +
    `${speedText(numberOf(entry, 'tokens_per_second_single'))} for one request at a time.`,
  'model left out': (entry) => `A model is left out: ${textOf(entry, 'fault')}.`,
  'models left out': (entry) =>
    `${countText(numberOf(entry, 'left_out'), 'model')} left out: a node serves ` +
    `${numberOf(entry, 'models_max')} models at most, with names without blanks and commas.`,
  connected: describeConnected,
  disconnected: describeDisconnected,
  'not registered': (entry) =>
    `Not ready yet: ${textOf(entry, 'fault') || faultOf(entry.err)}. Trying again.`,
  'the backend cannot be used': (entry) =>
    `The inference server cannot be used: ${textOf(entry, 'fault')}. Trying again.`,
  'the backend failed': (entry) =>
    `The inference server failed a request for ${textOf(entry, 'model')}: ${textOf(entry, 'reason')}.`,
  stopping: (entry) =>
    `Stopping. ${countText(numberOf(entry, 'running'), 'running request')} to finish first.`,
  stopped: () => 'Stopped.',
}

function describeConnected(entry: Entry, { gatewayUrl, nodeName, speeds }: Context): string {
  const { models } = entry
  const served = Array.isArray(models)
    ? models.map((model) => withSpeed(printable(String(model)), speeds.get(String(model))))
    : []
  const name = nodeName ?? textOf(entry, 'node_id')
  return `Connected to ${gatewayUrl} as node ${printable(name)}. Ready, serving ${served.join(', ')}.`
}

function describeDisconnected(entry: Entry): string {
  const { openMs, isRequested } = entry
  const reason = textOf(entry, 'reason') || 'the gateway gave no reason'
  const again = `Trying again in ${millisecondsText(numberOf(entry, 'pause_ms'))}.`
  if (typeof openMs !== 'number') return `Not connected: ${reason}. ${again}`
  const how = isRequested === true ? 'The gateway asked for a new connection' : reason
  return `Disconnected after ${lengthText(openMs / 1000)} (${numberOf(entry, 'code')}): ${how}. ${again}`
}

function describeOther({ level: _level, time: _time, msg, ...members }: Entry): string {
  const shown = Object.entries(members).map(
    ([name, value]) => `${printable(name)}=${printable(JSON.stringify(value) ?? '')}`,
  )
  return [printable(String(msg)), ...shown].join(' ')
}

/** `err` has the form in which the logger writes errors. */
function faultOf(err: unknown): string {
  const { type, message } = (err ?? {}) as Entry
  return printable(`${type}: ${message}`)
}

function named(entry: Entry): string {
  return `${textOf(entry, 'name')} (${textOf(entry, 'node_id')})`
}

function textOf(entry: Entry, name: string): string {
  const value = entry[name]
  return typeof value === 'string' ? printable(value).replace(/\.$/, '') : ''
}

function numberOf(entry: Entry, name: string): number {
  const value = entry[name]
  return typeof value === 'number' ? value : 0
}

function parseEntry(line: string): Entry | null {
  try {
    const entry: unknown = JSON.parse(line)
    return typeof entry === 'object' && entry !== null ? (entry as Entry) : null
  } catch {
    return null
  }
}

/** Hours, minutes and seconds in the local time zone. */
function clock({ time }: Entry): string {
  const date = new Date(String(time))
  return [date.getHours(), date.getMinutes(), date.getSeconds()]
    .map((part) => String(part).padStart(2, '0'))
    .join(':')
}
