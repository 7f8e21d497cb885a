import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A span as a collector received it. Ids are hex; times Unix milliseconds. */
export type CollectedSpan = {
  readonly service: string
  readonly traceId: string
  readonly spanId: string
  /** Empty for a root. */
  readonly parentSpanId: string
  readonly name: string
  readonly kind: number
  readonly startMs: number
  readonly endMs: number
  readonly attributes: Readonly<Record<string, string | number | boolean>>
  /** 2 is an error. */
  readonly status: number
}

/** An OTLP collector over HTTP that keeps what it receives. */
export type OtlpCollector = {
  readonly url: string
  spans(): readonly CollectedSpan[]
  /** All received bytes, as Latin-1. */
  received(): string
  readonly headers: readonly Readonly<Record<string, unknown>>[]
  close(): Promise<void>
}

/** Starts a collector on a free port of this machine. */
export async function startOtlpCollector(): Promise<OtlpCollector> {
  const bodies: Buffer[] = []
  const headers: Readonly<Record<string, unknown>>[] = []
  const server = createServer(async (request, response) => {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part)
    headers.push({ ...request.headers, path: request.url })
    bodies.push(Buffer.concat(parts))
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans: () => bodies.flatMap(readRequest),
    received: () => Buffer.concat(bodies).toString('latin1'),
    headers,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** ExportTraceServiceRequest of opentelemetry-proto, with the fields that the tests use. */
function readRequest(request: Buffer): readonly CollectedSpan[] {
  return all(request, 1).flatMap((resourceSpans) => {
    const service = String(readAttributes(all(resourceSpans, 1)[0] ?? EMPTY, 1)['service.name'])
    return all(resourceSpans, 2).flatMap((scopeSpans) =>
      all(scopeSpans, 2).map((span) => readSpan(span, service)),
    )
  })
}

function readSpan(span: Buffer, service: string): CollectedSpan {
  const timeMs = (field: number) =>
    Number((all(span, field)[0] ?? Buffer.alloc(8)).readBigUInt64LE() / 1_000_000n)
  return {
    service,
    traceId: hex(span, 1),
    spanId: hex(span, 2),
    parentSpanId: hex(span, 4),
    name: text(span, 5),
    kind: number(span, 6),
    startMs: timeMs(7),
    endMs: timeMs(8),
    attributes: readAttributes(span, 9),
    status: number(all(span, 15)[0] ?? EMPTY, 3),
  }
}

function readAttributes(message: Buffer, field: number): CollectedSpan['attributes'] {
  return Object.fromEntries(
    all(message, field).map((pair) => [text(pair, 1), readValue(all(pair, 2)[0] ?? EMPTY)]),
  )
}

function readValue(value: Buffer): string | number | boolean {
  const [string] = all(value, 1)
  if (string !== undefined) return string.toString('utf8')
  const [double] = all(value, 4)
  if (double !== undefined) return double.readDoubleLE()
  return all(value, 2).length > 0 ? number(value, 2) === 1 : number(value, 3)
}

const EMPTY = Buffer.alloc(0)
const hex = (message: Buffer, field: number) => (all(message, field)[0] ?? EMPTY).toString('hex')
const text = (message: Buffer, field: number) => (all(message, field)[0] ?? EMPTY).toString('utf8')
const number = (message: Buffer, field: number) => {
  const [bytes] = all(message, field)
  return bytes === undefined ? 0 : readVarint(bytes, 0).value
}

/** The values of a field of a protobuf message, in order; for a number its varint. */
function all(message: Buffer, wanted: number): readonly Buffer[] {
  const found: Buffer[] = []
  let at = 0
  while (at < message.length) {
    const tag = readVarint(message, at)
    at = tag.end
    const { start, end } = valueAt(message, at, tag.value % 8)
    if (Math.floor(tag.value / 8) === wanted) found.push(message.subarray(start, end))
    at = end
  }
  return found
}

function valueAt(
  message: Buffer,
  at: number,
  wireType: number,
): { readonly start: number; readonly end: number } {
  if (wireType === 0) return { start: at, end: readVarint(message, at).end }
  if (wireType === 1) return { start: at, end: at + 8 }
  if (wireType === 5) return { start: at, end: at + 4 }
  const length = readVarint(message, at)
  return { start: length.end, end: length.end + length.value }
}

function readVarint(
  bytes: Buffer,
  start: number,
): { readonly value: number; readonly end: number } {
  let value = 0
  for (let at = start, scale = 1; ; at++, scale *= 128) {
    const byte = bytes[at] ?? 0
    value += (byte % 128) * scale
    if (byte < 128) return { value, end: at + 1 }
  }
}
