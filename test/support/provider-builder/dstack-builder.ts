import { createHash } from 'node:crypto'
import type { DstackImage, DstackPolicy } from '#attestation/providers/dstack/dstack-policy.ts'
import type { DstackEvidence } from '#attestation/providers/dstack/verify-dstack-log.ts'
import { decodeTdxQuote } from '#attestation/providers/tdx/quote.ts'
import { buildTdxEvidence } from './tdx-builder.ts'

/** One event of a log, as a service writes it. */
export type LoggedEvent = {
  readonly imr: number
  readonly event_type: number
  readonly digest: string
  readonly event: string
  readonly event_payload: string
  readonly version?: number
}

const RUNTIME_TYPE = 0x08000001

export const APP_COMPOSE = '{"name":"development","docker_compose_file":"services: {}"}'
export const COMPOSE_HASH = sha('sha256', Buffer.from(APP_COMPOSE))
export const APP_ID = COMPOSE_HASH.slice(0, 20)
const KEY_PROVIDER = '{"name":"kms","id":"3059"}'

/** A runtime event with its true digest; `version` 2 hashes canonical JSON. */
export function runtimeEvent(
  event: string,
  payload: Uint8Array | string,
  version = 1,
): LoggedEvent {
  const hex = Buffer.from(payload).toString('hex')
  const content =
    version === 2
      ? Buffer.from(`{"name":"${event}","payload":"${hex}","type":${RUNTIME_TYPE}}`)
      : Buffer.concat([
          Buffer.from('01000008', 'hex'),
          Buffer.from(`:${event}:`),
          Buffer.from(payload),
        ])
  return {
    imr: 3,
    event_type: RUNTIME_TYPE,
    digest: Buffer.from(sha('sha384', content)).toString('hex'),
    event,
    event_payload: hex,
    ...(version === 2 ? { version } : {}),
  }
}

/** A measured event of the firmware, which is a digest alone. */
export function bootEvent(imr: number, fill: number): LoggedEvent {
  const digest = Buffer.alloc(48, fill).toString('hex')
  return { imr, event_type: 0x80000001, digest, event: '', event_payload: '00' }
}

/** What a machine logs. */
export const STANDARD_EVENTS: readonly LoggedEvent[] = [
  bootEvent(0, 1),
  bootEvent(1, 2),
  bootEvent(2, 3),
  runtimeEvent('system-preparing', ''),
  runtimeEvent('app-id', APP_ID),
  runtimeEvent('compose-hash', COMPOSE_HASH, 2),
  runtimeEvent('instance-id', new Uint8Array(20).fill(7)),
  runtimeEvent('key-provider', KEY_PROVIDER),
  runtimeEvent('system-ready', ''),
]

export type DstackChanges = {
  /** Measured events; the quote's registers are what they give. */
  readonly measured?: readonly LoggedEvent[]
  /** What is given as the log, in place of the measured events. */
  readonly log?: unknown
  readonly appCompose?: string | null
  readonly configDocument?: string | null
  readonly mrConfigId?: Uint8Array
}

/** Evidence as a well-kept machine gives it, but for the changes. */
export function buildDstackEvidence(changes: DstackChanges = {}): DstackEvidence {
  const { measured = STANDARD_EVENTS, log = measured } = changes
  const { body } = decodeTdxQuote(buildTdxEvidence().quote)
  return {
    body: {
      ...body,
      rtmrs: [0, 1, 2, 3].map((index) => registerOf(measured, index)),
      mrConfigId: changes.mrConfigId ?? new Uint8Array(48),
    },
    eventLog: Buffer.from(JSON.stringify(log)),
    appCompose: bytesOf(changes.appCompose === undefined ? APP_COMPOSE : changes.appCompose),
    configDocument: bytesOf(changes.configDocument ?? null),
  }
}

function bytesOf(text: string | null): Uint8Array | null {
  return text === null ? null : Buffer.from(text)
}

/** The register after these events. */
export function registerOf(events: readonly LoggedEvent[], index: number): Uint8Array {
  return events
    .filter(({ imr }) => imr === index)
    .reduce<Uint8Array>(
      (value, { digest }) => sha('sha384', Buffer.concat([value, Buffer.from(digest, 'hex')])),
      new Uint8Array(48),
    )
}

/** An image whose measurements are those of the builder's machine. */
export function buildImage(
  metadata = '{"version":"0.5.4","is_dev":false}',
  checksums = `${Buffer.from(sha('sha256', Buffer.from(metadata))).toString('hex')}  metadata.json\n`,
): DstackImage {
  const { body } = buildDstackEvidence()
  const [rtmr0, rtmr1, rtmr2] = body.rtmrs
  if (!rtmr0 || !rtmr1 || !rtmr2) throw new Error('expected four registers')
  return {
    checksums: Buffer.from(checksums),
    metadata: Buffer.from(metadata),
    measurements: [{ mrTd: body.mrTd, rtmr0, rtmr1, rtmr2 }],
  }
}

/** Accepts the builder's evidence, with every check made. */
export const DSTACK_POLICY: DstackPolicy = {
  composeHashes: [COMPOSE_HASH],
  appIds: [APP_ID],
  images: [buildImage()],
}

/** MRCONFIGID of a form with 32 bytes. */
export function configId(form: number, content: Uint8Array): Uint8Array {
  return Buffer.concat([Uint8Array.of(form), content, new Uint8Array(15)])
}

export function sha(name: 'sha256' | 'sha384', bytes: Uint8Array): Uint8Array {
  return new Uint8Array(createHash(name).update(bytes).digest())
}
