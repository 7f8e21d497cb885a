import { keccak_256 } from '@noble/hashes/sha3.js'
import type { DstackCheckName, DstackCode } from '#attestation/providers/dstack/dstack-codes.ts'
import type { DstackPolicy } from '#attestation/providers/dstack/dstack-policy.ts'
import {
  APP_ID,
  bootEvent,
  buildImage,
  COMPOSE_HASH,
  configId,
  type DstackChanges,
  type LoggedEvent,
  runtimeEvent,
  STANDARD_EVENTS,
  sha,
} from '../provider-builder/dstack-builder.ts'

type Verification = {
  readonly name: string
  readonly changes: DstackChanges
  readonly policy?: Partial<DstackPolicy>
}

/** A log that breaks one rule, and the code of its refusal. */
export type DstackRefusal = Verification & { readonly code: DstackCode }

/** A log at the edge of a rule that is still accepted. */
export type DstackAcceptance = Verification & {
  readonly check: DstackCheckName
  /** Checks that the policy or the machine leaves out. */
  readonly waived?: readonly DstackCheckName[]
}

const replaceAt = (index: number, changed: Partial<LoggedEvent>) =>
  STANDARD_EVENTS.map((event, at) => (at === index ? { ...event, ...changed } : event))
const without = (name: string) => STANDARD_EVENTS.filter(({ event }) => event !== name)
const beforeReady = (...events: readonly LoggedEvent[]) => [
  ...STANDARD_EVENTS.slice(0, -1),
  ...events,
  ...STANDARD_EVENTS.slice(-1),
]
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const other = new Uint8Array(32).fill(9)

const documentOf = (members: object) => {
  const text = JSON.stringify(members)
  const hash = sha('sha256', Buffer.from(`dstack-mr-config-v3:\0${text}`))
  return { configDocument: text, mrConfigId: configId(3, hash) }
}
const DOCUMENT = { app_id: hex(APP_ID), compose_hash: hex(COMPOSE_HASH), version: 3 }
const form2 = (kind: number) =>
  configId(2, keccak_256(Buffer.concat([COMPOSE_HASH, APP_ID, Uint8Array.of(kind, 0x30, 0x59)])))

export const dstackRefusals: readonly DstackRefusal[] = [
  { code: 'event_log_malformed', name: 'a log that is no list', changes: { log: {} } },
  { code: 'event_log_malformed', name: 'a register 4', changes: { log: replaceAt(0, { imr: 4 }) } },
  {
    code: 'event_log_malformed',
    name: 'a payload that is no hex',
    changes: { log: replaceAt(4, { event_payload: 'xy' }) },
  },
  {
    code: 'event_log_malformed',
    name: 'version 3',
    changes: { log: replaceAt(4, { version: 3 }) },
  },
  {
    code: 'event_log_malformed',
    name: 'a string in a string',
    changes: { log: JSON.stringify(JSON.stringify(STANDARD_EVENTS)) },
  },
  {
    code: 'event_log_too_long',
    name: '4097 events',
    changes: { log: new Array(4097).fill(bootEvent(0, 1)) },
  },
  {
    code: 'event_digest_mismatch',
    name: 'a false payload beside the true digest',
    changes: { log: replaceAt(5, { event_payload: hex(other) }) },
  },
  {
    code: 'event_digest_mismatch',
    name: 'a false name beside the true digest',
    changes: { log: replaceAt(6, { event: 'compose-hash' }) },
  },
  {
    code: 'event_digest_missing',
    name: 'a boot event without a digest',
    changes: { log: replaceAt(0, { digest: '' }) },
  },
  {
    code: 'register_mismatch',
    name: 'a false payload without a digest',
    changes: { log: replaceAt(5, { event_payload: hex(other), digest: '' }) },
  },
  {
    code: 'register_mismatch',
    name: 'a dropped event',
    changes: { log: STANDARD_EVENTS.slice(1) },
  },
  {
    code: 'register_mismatch',
    name: 'two events in another order',
    changes: { log: STANDARD_EVENTS.toReversed() },
  },
  {
    code: 'system_ready_missing',
    name: 'a log before the system was ready',
    changes: { measured: without('system-ready') },
  },
  {
    code: 'system_event_missing',
    name: 'a compose hash that the application logged',
    changes: {
      measured: [...without('compose-hash'), runtimeEvent('compose-hash', COMPOSE_HASH)],
    },
  },
  {
    code: 'system_event_disguised',
    name: 'the system under another type, so that the application stands in',
    changes: {
      measured: [
        ...STANDARD_EVENTS.map((event) =>
          ['compose-hash', 'system-ready'].includes(event.event)
            ? { ...event, event_type: 0x08000002 }
            : event,
        ),
        runtimeEvent('compose-hash', COMPOSE_HASH),
        runtimeEvent('system-ready', ''),
      ],
    },
  },
  {
    code: 'system_event_disguised',
    name: 'a name with the colon at another place',
    changes: { measured: beforeReady(runtimeEvent('os-image-hash:', 'x')) },
  },
  {
    code: 'system_event_missing',
    name: 'a compose hash in another register',
    changes: {
      measured: beforeReady().map((event) =>
        event.event === 'compose-hash' ? { ...event, imr: 2 } : event,
      ),
    },
    policy: { images: 'any' },
  },
  {
    code: 'system_event_repeated',
    name: 'two compose hashes before the system was ready',
    changes: { measured: beforeReady(runtimeEvent('compose-hash', COMPOSE_HASH)) },
  },
  {
    code: 'system_event_malformed',
    name: 'an app id of 32 bytes',
    changes: {
      measured: [
        ...without('app-id').slice(0, 4),
        runtimeEvent('app-id', other),
        ...without('app-id').slice(4),
      ],
    },
  },
  { code: 'compose_mismatch', name: 'another app_compose', changes: { appCompose: '{}' } },
  {
    code: 'compose_not_accepted',
    name: 'an application that is not accepted',
    changes: {},
    policy: { composeHashes: [other] },
  },
  {
    code: 'app_id_not_accepted',
    name: 'an application id that is not accepted',
    changes: {},
    policy: { appIds: [new Uint8Array(20)] },
  },
  { code: 'config_id_form', name: 'form 4', changes: { mrConfigId: configId(4, COMPOSE_HASH) } },
  {
    code: 'config_id_form',
    name: 'a byte after the hash',
    changes: { mrConfigId: configId(1, COMPOSE_HASH).fill(1, 47) },
  },
  {
    code: 'config_id_mismatch',
    name: 'form 1 of another',
    changes: { mrConfigId: configId(1, other) },
  },
  {
    code: 'config_id_mismatch',
    name: 'form 2 of another key provider',
    changes: { mrConfigId: form2(1) },
  },
  {
    code: 'config_id_mismatch',
    name: 'form 2 without a logged key provider',
    changes: { mrConfigId: form2(2), measured: without('key-provider') },
  },
  {
    code: 'config_id_mismatch',
    name: 'form 3 with another compose hash',
    changes: documentOf({ ...DOCUMENT, compose_hash: hex(other) }),
  },
  {
    code: 'config_id_mismatch',
    name: 'form 3 with another app id',
    changes: documentOf({ ...DOCUMENT, app_id: '00'.repeat(20) }),
  },
  {
    code: 'config_document_mismatch',
    name: 'another document',
    changes: { ...documentOf(DOCUMENT), configDocument: '{}' },
  },
  {
    code: 'config_document_malformed',
    name: 'a document without a compose hash',
    changes: documentOf({ version: 3 }),
  },
  {
    code: 'os_image_not_accepted',
    name: 'another command line',
    changes: { measured: STANDARD_EVENTS.with(2, bootEvent(2, 4)) },
  },
  {
    code: 'os_image_hash_mismatch',
    name: 'a logged hash of another image',
    changes: { measured: beforeReady(runtimeEvent('os-image-hash', other)) },
  },
  {
    code: 'os_image_metadata',
    name: 'metadata that the checksums do not list',
    changes: {},
    policy: { images: [buildImage('{"is_dev":false}', `${'00'.repeat(32)}  metadata.json\n`)] },
  },
  {
    code: 'os_image_metadata',
    name: 'metadata that do not say is_dev',
    changes: {},
    policy: { images: [buildImage('{}')] },
  },
  {
    code: 'os_image_is_dev',
    name: 'a development image',
    changes: {},
    policy: { images: [buildImage('{"is_dev":true}')] },
  },
]

const zeroConfig: readonly DstackCheckName[] = ['configuration id']
export const dstackAcceptances: readonly DstackAcceptance[] = [
  {
    check: 'event log',
    name: 'a log as a JSON string, without digests',
    changes: {
      measured: STANDARD_EVENTS,
      log: JSON.stringify(
        STANDARD_EVENTS.map((event) => (event.imr === 3 ? { ...event, digest: '' } : event)),
      ),
    },
    waived: zeroConfig,
  },
  {
    check: 'register replay',
    name: 'events of the application after the system was ready',
    changes: {
      measured: [
        ...STANDARD_EVENTS,
        runtimeEvent('compose-hash', other),
        runtimeEvent('mine', 'x', 2),
      ],
    },
    waived: zeroConfig,
  },
  {
    check: 'system events',
    name: 'a second system-ready by the application',
    changes: { measured: [...STANDARD_EVENTS, runtimeEvent('system-ready', '')] },
    waived: zeroConfig,
  },
  {
    check: 'compose hash',
    name: 'no app_compose, but an accepted hash',
    changes: { appCompose: null },
    waived: zeroConfig,
  },
  {
    check: 'application id',
    name: 'no demand for an id',
    changes: {},
    policy: { appIds: [new Uint8Array(20), APP_ID] },
    waived: zeroConfig,
  },
  { check: 'configuration id', name: 'form 1', changes: { mrConfigId: configId(1, COMPOSE_HASH) } },
  { check: 'configuration id', name: 'form 2', changes: { mrConfigId: form2(2) } },
  { check: 'configuration id', name: 'form 3', changes: documentOf(DOCUMENT) },
  {
    check: 'configuration id',
    name: 'form 3 without an app id',
    changes: documentOf({ compose_hash: hex(COMPOSE_HASH) }),
  },
  {
    check: 'OS image',
    name: 'a logged hash of the image',
    changes: {
      measured: beforeReady(runtimeEvent('os-image-hash', sha('sha256', buildImage().checksums))),
    },
    waived: zeroConfig,
  },
  {
    check: 'OS image release',
    name: 'a development image that is allowed',
    changes: {},
    policy: { images: [buildImage('{"is_dev":true}')], allowDevImages: true },
    waived: zeroConfig,
  },
]

const image = buildImage()
const mrTdAlone = image.measurements.map(({ mrTd = new Uint8Array(48) }) => ({ mrTd }))

/** Policies that are errors of the call. */
export const brokenDstackPolicies: readonly (readonly [string, unknown])[] = [
  ['no accepted applications', { composeHashes: [], images: 'any' }],
  ['no images', { composeHashes: 'any', images: [] }],
  ['images left out', { composeHashes: 'any' }],
  [
    'an image without measurements',
    { composeHashes: 'any', images: [{ ...image, measurements: [] }] },
  ],
  [
    'an image with MRTD alone',
    { composeHashes: 'any', images: [{ ...image, measurements: mrTdAlone }] },
  ],
  ['an image without checksums', { composeHashes: 'any', images: [{ ...image, checksums: null }] }],
  ['an empty list of ids', { composeHashes: 'any', images: 'any', appIds: [] }],
  ['an unknown option', { composeHashes: 'any', images: 'any', dev: true }],
  ['allowDevImages as text', { composeHashes: 'any', images: 'any', allowDevImages: 'no' }],
]
