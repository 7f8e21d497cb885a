import { createHash } from 'node:crypto'
import { encodeHex } from '#attestation/bytes.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'

const PREFIX = 'https://tinfoil.sh/'

/** The type of the predicate in a signed build. */
export const TINFOIL_PREDICATE = `${PREFIX}predicate/snp-tdx-multiplatform/v1`

/** The machine's keys, and the evidence of its devices. The hardware's report covers both. */
type BoundItems = { readonly items: readonly Json[]; readonly devices: readonly Json[] }

/** `spkiSha256`: SHA-256 of the SubjectPublicKeyInfo, hex. */
export function tlsKeyItem(spkiSha256: string): JsonObject {
  return { id: 'tls', format: `${PREFIX}key/spki-fp-sha256/v1`, data: spkiSha256 }
}

/** Version 3 of Tinfoil's document. `attest` makes the hardware's report over 64 bytes. */
export function buildTinfoilAnswer({
  nonce,
  format,
  bound,
  collateral,
  attest,
}: {
  readonly nonce: Uint8Array
  readonly format: 'tdx-quote' | 'sev-snp-report'
  readonly bound: BoundItems
  readonly collateral: readonly Json[]
  readonly attest: (reportData: Uint8Array) => Uint8Array
}) {
  const crypto = section('crypto-material', bound.items)
  const device = section('device-evidence', bound.devices)
  const algorithm = `${PREFIX}report-data/v1`
  const hashes = [sha256(crypto), sha256(device)] as const
  const hash = sha256(Buffer.from(algorithm), nonce, ...hashes)
  const reportData = Buffer.concat([hash, Buffer.alloc(32)])
  return {
    format: `${PREFIX}predicate/attestation/v3`,
    challenge: {
      nonce: Buffer.from(nonce).toString('hex'),
      report_data: reportData.toString('hex'),
      report_data_algorithm: algorithm,
    },
    cpu_evidence: {
      format: `${PREFIX}format/${format}/v1`,
      report_base64: Buffer.from(attest(reportData)).toString('base64'),
      endorsed: {
        crypto_material_hash: hashes[0].toString('hex'),
        device_evidence_hash: hashes[1].toString('hex'),
      },
    },
    crypto_material: crypto.toString('base64'),
    device_evidence: device.toString('base64'),
    collateral,
  }
}

export function collateralItem(format: 'intel-pcs' | 'sigstore-code', data: JsonObject): Json {
  return { format: `${PREFIX}collateral/${format}/v1`, data }
}

export function predicateOfBuild({
  config,
  cmdline,
  measurements,
}: {
  readonly config: string
  readonly cmdline: string
  readonly measurements: {
    readonly snp: Uint8Array
    readonly rtmr1: Uint8Array
    readonly rtmr2: Uint8Array
  }
}): JsonObject {
  return {
    snp_measurement: encodeHex(measurements.snp),
    tdx_measurement: { rtmr1: encodeHex(measurements.rtmr1), rtmr2: encodeHex(measurements.rtmr2) },
    cmdline,
    config: Buffer.from(config).toString('base64'),
  }
}

export function cmdlineOf(config: string): string {
  return `readonly=on tinfoil-config-hash=${sha256(Buffer.from(config)).toString('hex')}`
}

function section(name: string, items: readonly Json[]): Buffer {
  return Buffer.from(JSON.stringify({ format: `${PREFIX}${name}/v1`, items }))
}

function sha256(...parts: readonly Uint8Array[]): Buffer {
  return createHash('sha256').update(Buffer.concat(parts)).digest()
}
