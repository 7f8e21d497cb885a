import { keccak_256 } from '@noble/hashes/sha3.js'
import type { DstackCheckName, DstackCode } from '#attestation/providers/dstack/dstack-codes.ts'
import type { DstackPolicy } from '#attestation/providers/dstack/dstack-policy.ts'
import { casesOf, nearly } from '../case-table.ts'
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

type DstackCase = DstackChanges & { readonly policy?: Partial<DstackPolicy> }
/** `waived`: checks that the policy or the machine leaves out. */
type AcceptedCase = DstackCase & { readonly waived?: readonly DstackCheckName[] }

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

/** Logs that break one rule, by the code of the refusal. */
export const dstackRefusals = casesOf<'code', DstackCode, DstackCase>('code', {
  event_log_malformed: {
    'a log that is no list': { log: {} },
    'a register 4': { log: replaceAt(0, { imr: 4 }) },
    'a payload that is no hex': { log: replaceAt(4, { event_payload: 'xy' }) },
    'version 3': { log: replaceAt(4, { version: 3 }) },
    'a string in a string': { log: JSON.stringify(JSON.stringify(STANDARD_EVENTS)) },
  },
  event_log_too_long: {
    '4097 events': { log: new Array(4097).fill(bootEvent(0, 1)) },
  },
  event_digest_mismatch: {
    'a digest that differs in its last bit': {
      log: replaceAt(5, {
        digest: hex(nearly(Buffer.from(STANDARD_EVENTS[5]?.digest ?? '', 'hex'))),
      }),
    },
    'a false payload beside the true digest': {
      log: replaceAt(5, { event_payload: hex(other) }),
    },
    'a false name beside the true digest': { log: replaceAt(6, { event: 'compose-hash' }) },
  },
  event_digest_missing: {
    'a boot event without a digest': { log: replaceAt(0, { digest: '' }) },
  },
  register_mismatch: {
    'a false payload without a digest': {
      log: replaceAt(5, { event_payload: hex(other), digest: '' }),
    },
    'a dropped event': { log: STANDARD_EVENTS.slice(1) },
    'two events in another order': { log: STANDARD_EVENTS.toReversed() },
  },
  system_ready_missing: {
    'a log before the system was ready': { measured: without('system-ready') },
  },
  system_event_missing: {
    'a compose hash that the application logged': {
      measured: [...without('compose-hash'), runtimeEvent('compose-hash', COMPOSE_HASH)],
    },
    'a compose hash in another register': {
      measured: beforeReady().map((event) =>
        event.event === 'compose-hash' ? { ...event, imr: 2 } : event,
      ),
      policy: { images: 'any' },
    },
  },
  system_event_disguised: {
    'the system under another type, so that the application stands in': {
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
    'a name with the colon at another place': {
      measured: beforeReady(runtimeEvent('os-image-hash:', 'x')),
    },
  },
  system_event_repeated: {
    'two compose hashes before the system was ready': {
      measured: beforeReady(runtimeEvent('compose-hash', COMPOSE_HASH)),
    },
  },
  system_event_malformed: {
    'an app id of 32 bytes': {
      measured: [
        ...without('app-id').slice(0, 4),
        runtimeEvent('app-id', other),
        ...without('app-id').slice(4),
      ],
    },
  },
  compose_mismatch: {
    'another app_compose': { appCompose: '{}' },
    'a logged hash that differs in its last bit': {
      measured: STANDARD_EVENTS.with(5, runtimeEvent('compose-hash', nearly(COMPOSE_HASH))),
      policy: { composeHashes: [nearly(COMPOSE_HASH)] },
    },
  },
  compose_not_accepted: {
    'an application that is not accepted': { policy: { composeHashes: [nearly(COMPOSE_HASH)] } },
  },
  app_id_not_accepted: {
    'an application id that is not accepted': { policy: { appIds: [nearly(APP_ID)] } },
  },
  config_id_form: {
    'form 4': { mrConfigId: configId(4, COMPOSE_HASH) },
    'a byte after the hash': { mrConfigId: configId(1, COMPOSE_HASH).fill(1, 47) },
  },
  config_id_mismatch: {
    'form 1 of another': { mrConfigId: configId(1, nearly(COMPOSE_HASH)) },
    'form 2 of another key provider': { mrConfigId: form2(1) },
    'form 2 without a logged key provider': {
      mrConfigId: form2(2),
      measured: without('key-provider'),
    },
    'form 3 with another compose hash': documentOf({ ...DOCUMENT, compose_hash: hex(other) }),
    'form 3 with another app id': documentOf({ ...DOCUMENT, app_id: '00'.repeat(20) }),
  },
  config_document_mismatch: {
    'a document whose hash differs in its last bit': {
      ...documentOf(DOCUMENT),
      mrConfigId: nearly(documentOf(DOCUMENT).mrConfigId, 32),
    },
    'another document': { ...documentOf(DOCUMENT), configDocument: '{}' },
  },
  config_document_malformed: {
    'a document without a compose hash': documentOf({ version: 3 }),
  },
  os_image_not_accepted: {
    'another command line': { measured: STANDARD_EVENTS.with(2, bootEvent(2, 4)) },
  },
  os_image_hash_mismatch: {
    'a logged hash of another image': {
      measured: beforeReady(
        runtimeEvent('os-image-hash', nearly(sha('sha256', buildImage().checksums))),
      ),
    },
  },
  os_image_metadata: {
    'metadata that the checksums do not list': {
      policy: { images: [buildImage('{"is_dev":false}', `${'00'.repeat(32)}  metadata.json\n`)] },
    },
    'metadata that do not say is_dev': { policy: { images: [buildImage('{}')] } },
  },
  os_image_is_dev: {
    'a development image': { policy: { images: [buildImage('{"is_dev":true}')] } },
  },
})

const zeroConfig: readonly DstackCheckName[] = ['configuration id']
/** Logs at the edge of a rule that are still accepted. */
export const dstackAcceptances = casesOf<'check', DstackCheckName, AcceptedCase>('check', {
  'event log': {
    'a log as a JSON string, without digests': {
      measured: STANDARD_EVENTS,
      log: JSON.stringify(
        STANDARD_EVENTS.map((event) => (event.imr === 3 ? { ...event, digest: '' } : event)),
      ),
      waived: zeroConfig,
    },
  },
  'register replay': {
    'events of the application after the system was ready': {
      measured: [
        ...STANDARD_EVENTS,
        runtimeEvent('compose-hash', other),
        runtimeEvent('mine', 'x', 2),
      ],
      waived: zeroConfig,
    },
  },
  'system events': {
    'a second system-ready by the application': {
      measured: [...STANDARD_EVENTS, runtimeEvent('system-ready', '')],
      waived: zeroConfig,
    },
  },
  'compose hash': {
    'no app_compose, but an accepted hash': { appCompose: null, waived: zeroConfig },
  },
  'application id': {
    'no demand for an id': { policy: { appIds: [new Uint8Array(20), APP_ID] }, waived: zeroConfig },
  },
  'configuration id': {
    'form 1': { mrConfigId: configId(1, COMPOSE_HASH) },
    'form 2': { mrConfigId: form2(2) },
    'form 3': documentOf(DOCUMENT),
    'form 3 without an app id': documentOf({ compose_hash: hex(COMPOSE_HASH) }),
  },
  'OS image': {
    'a logged hash of the image': {
      measured: beforeReady(runtimeEvent('os-image-hash', sha('sha256', buildImage().checksums))),
      waived: zeroConfig,
    },
  },
  'OS image release': {
    'a development image that is allowed': {
      policy: { images: [buildImage('{"is_dev":true}')], allowDevImages: true },
      waived: zeroConfig,
    },
  },
})

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
