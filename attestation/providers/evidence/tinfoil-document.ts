import { concatBytes, decodeBase64, decodeHex, encodeHex, encodeUtf8, sha256 } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, memberAt } from '../../json/value.ts'
import type { GpuEvidence } from '../nvidia/verify-gpu-evidence.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'
import { readDevices } from './judge-gpus.ts'
import type { HardwareEvidence } from './judge-hardware.ts'

type TinfoilKeys = { readonly tls: string; readonly hpke: string | null }

/** All members are only claimed until the hardware is verified. */
export type TinfoilDocument = {
  readonly hardware: HardwareEvidence
  /** 32 bytes, hex. Null for version 2, which has no nonce. */
  readonly nonce: string | null
  /**
   * Returns the keys that `reportData` proves. Throws ProviderEvidenceError if `reportData` belongs
   * to another document.
   */
  keysIn(reportData: Uint8Array): TinfoilKeys
  readDevices(): readonly GpuEvidence[]
  /** Null for version 2. */
  readonly collateral: Json | null
}

const PREFIX = 'https://tinfoil.sh/'
const REPORT_BYTES_MAX = 32_768
const HASH = 32

const { hexOf, invalid, membersOf, arrayOf, textOf } = formsOf('answer_malformed')

/** Parses version 2 or 3 of Tinfoil's document. Throws ProviderEvidenceError. */
export async function parseTinfoilDocument(body: Uint8Array): Promise<TinfoilDocument> {
  const json = parsedAs('answer_malformed', () => parseExactJson(body))
  if (memberAt(json, 'format') === `${PREFIX}predicate/attestation/v3`)
    return parsedAs('answer_malformed', () => readVersion3(json))
  const { format, packed } = parsedAs('answer_malformed', () => {
    const members = membersOf(json, 'the document', ['format', 'body'])
    return {
      format: textOf(members.format, 'format'),
      packed: decodeBase64(textOf(members.body, 'body')),
    }
  })
  return readVersion2(format, await unpack(new Uint8Array(packed)))
}

const VERSION_2: Readonly<Record<string, HardwareEvidence['tee']>> = {
  [`${PREFIX}predicate/sev-snp-guest/v2`]: 'SEV-SNP',
  [`${PREFIX}predicate/tdx-guest/v2`]: 'TDX',
}

function readVersion2(format: string, report: Uint8Array): TinfoilDocument {
  const tee = Object.hasOwn(VERSION_2, format) ? VERSION_2[format] : undefined
  if (tee === undefined) throw refuseEvidence('answer_malformed', 'expected a known format')
  return {
    hardware: hardwareOf(tee, report),
    nonce: null,
    keysIn: (data) => ({
      tls: encodeHex(data.subarray(0, HASH)),
      hpke: encodeHex(data.subarray(HASH)),
    }),
    readDevices: () => [],
    collateral: null,
  }
}

function hardwareOf(tee: HardwareEvidence['tee'], bytes: Uint8Array): HardwareEvidence {
  return tee === 'TDX' ? { tee, quote: bytes } : { tee, report: bytes }
}

/**
 * Stops after REPORT_BYTES_MAX bytes, because a small attacker-controlled input can unpack to a
 * large one.
 */
async function unpack(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const reader = new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream('gzip'))
    .getReader()
  let unpacked: Uint8Array = new Uint8Array()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return unpacked
      unpacked = concatBytes(unpacked, value)
      if (unpacked.length > REPORT_BYTES_MAX) break
    }
  } catch {
    // `packed` is not gzip. The error differs between engines, so the function throws its own.
  }
  await reader.cancel().catch(() => {})
  throw refuseEvidence('answer_malformed', `expected gzip of at most ${REPORT_BYTES_MAX} bytes`)
}

const VERSION_3: Readonly<Record<string, HardwareEvidence['tee']>> = {
  [`${PREFIX}format/sev-snp-report/v1`]: 'SEV-SNP',
  [`${PREFIX}format/tdx-quote/v1`]: 'TDX',
}
const REPORT_DATA = `${PREFIX}report-data/v1`

const DOCUMENT_MEMBERS = [
  'format',
  'challenge',
  'cpu_evidence',
  'crypto_material',
  'device_evidence',
  'collateral',
] as const

function readVersion3(json: Json): TinfoilDocument {
  const members = membersOf(json, 'the document', DOCUMENT_MEMBERS)
  const challenge = membersOf(members.challenge, 'challenge', [
    'nonce',
    'report_data',
    'report_data_algorithm',
  ])
  if (challenge.report_data_algorithm !== REPORT_DATA)
    throw invalid('report_data_algorithm', REPORT_DATA)
  const cpu = membersOf(members.cpu_evidence, 'cpu_evidence', [
    'format',
    'report_base64',
    'endorsed',
  ])
  const format = textOf(cpu.format, 'cpu_evidence.format')
  const tee = Object.hasOwn(VERSION_3, format) ? VERSION_3[format] : undefined
  if (tee === undefined) throw invalid('cpu_evidence.format', 'a known format')
  const crypto = decodeBase64(textOf(members.crypto_material, 'crypto_material'))
  const device = decodeBase64(textOf(members.device_evidence, 'device_evidence'))
  const keys = readKeys(crypto)
  const nonce = hexOf(challenge.nonce, 'challenge.nonce', HASH)
  const bound = encodeHex(
    sha256(concatBytes(encodeUtf8(REPORT_DATA), decodeHex(nonce), sha256(crypto), sha256(device))),
  )
  return {
    hardware: hardwareOf(tee, decodeBase64(textOf(cpu.report_base64, 'report_base64'))),
    nonce,
    keysIn: (data) => {
      if (encodeHex(data) !== bound + '00'.repeat(HASH))
        throw refuseEvidence(
          'key_binding_mismatch',
          'expected report data of nonce, keys and devices',
        )
      if (keys.tls === null) throw refuseEvidence('tls_key_missing', 'expected a TLS key')
      return { tls: keys.tls, hpke: keys.hpke }
    },
    readDevices: () => readDeviceSection(device),
    collateral: members.collateral,
  }
}

const ITEMS_MAX = 32

/** A key is null if no item has its id. */
function readKeys(section: Uint8Array): {
  readonly tls: string | null
  readonly hpke: string | null
} {
  const items = readItems(section, 'crypto-material', ['id', 'format', 'data'])
  const keyOf = (id: string, format: string) => {
    const item = items.find((one) => one.id === id)
    if (item === undefined) return null
    if (item.format !== `${PREFIX}key/${format}/v1`)
      throw invalid(`key ${id}`, `of format ${format}`)
    return hexOf(item.data, `key ${id}`, HASH)
  }
  return { tls: keyOf('tls', 'spki-fp-sha256'), hpke: keyOf('hpke', 'x25519-hpke') }
}

function readDeviceSection(section: Uint8Array): readonly GpuEvidence[] {
  const names = ['id', 'kind', 'vendor', 'format', 'evidence']
  const items = parsedAs('gpu_malformed', () => readItems(section, 'device-evidence', names))
  if (items.some(({ format }) => format !== `${PREFIX}format/nvidia-gpu-evidence/v1`))
    throw refuseEvidence('gpu_malformed', "expected evidence of NVIDIA's devices alone")
  return readDevices(items.map(({ evidence = null }) => evidence))
}

function readItems(section: Uint8Array, name: string, members: readonly string[]) {
  const json = parseExactJson(section)
  const { format, items } = membersOf(json, name, ['format', 'items'])
  if (format !== `${PREFIX}${name}/v1`) throw invalid(name, `a section of format ${name}/v1`)
  const read = arrayOf(items, `${name}.items`, { min: 0, max: ITEMS_MAX }).map((item, index) =>
    membersOf(item, `${name}.items.${index}`, members),
  )
  const ids = read.map(({ id = null }) => textOf(id, `${name} id`))
  if (new Set(ids).size < ids.length)
    throw new FormatError('answer_malformed', 'expected each id once')
  return read
}
