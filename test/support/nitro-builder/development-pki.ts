import { createHash } from 'node:crypto'
import {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  certificateParts,
  generateKey,
  KEY_USAGE_BITS,
  type KeyPair,
  keyUsage,
  leafConstraints,
  nameOf,
} from './certificate-builder.ts'

/** When the documents of these tests are made. Every certificate is valid at that time. */
export const MADE_AT = new Date('2026-03-04T05:06:07.000Z')
export const MODULE_ID = 'i-0123456789abcdef0-enc0123456789abcdef'
export const INSTANCE_ID = 'i-0123456789abcdef0'

/** Changes one certificate of a chain before it is signed. `level` 0 is the root, 4 the leaf. */
export type Alteration = { readonly level: number; readonly parts: Partial<CertificateParts> }

export type Chain = {
  /** DER, root first, without the leaf. */
  readonly cabundle: readonly Uint8Array<ArrayBuffer>[]
  readonly certificate: Uint8Array<ArrayBuffer>
  readonly leafKey: KeyPair
  /** SHA-256 of the root's DER. */
  readonly rootSha256: Uint8Array
}

/** Gives a chain with AWS's five profiles and lifetimes; `alterations` change it. */
export function buildChain(...alterations: readonly Alteration[]): Chain {
  const ders = LEVELS.map((_, level) => {
    const altered = alterations.filter((alteration) => alteration.level === level)
    if (altered.length === 0) return standardCertificate(level)
    return buildCertificate(Object.assign({}, partsOf(level), ...altered.map(({ parts }) => parts)))
  })
  const [root = new Uint8Array()] = ders
  return {
    cabundle: ders.slice(0, -1),
    certificate: ders.at(-1) ?? new Uint8Array(),
    leafKey: levelAt(4).key,
    rootSha256: createHash('sha256').update(root).digest(),
  }
}

/**
 * Signatures are random, so each is made once: chains without a change at a level share its
 * certificate.
 */
function standardCertificate(level: number): Uint8Array<ArrayBuffer> {
  const der = standardCertificates.get(level) ?? buildCertificate(partsOf(level))
  standardCertificates.set(level, der)
  return der
}

const standardCertificates = new Map<number, Uint8Array<ArrayBuffer>>()

/** Gives the parts of one certificate as AWS would make it. */
export function partsOf(level: number): CertificateParts {
  const { commonName, key, extensions, beforeMs, afterMs } = levelAt(level)
  const parent = levelAt(Math.max(level - 1, 0))
  return certificateParts({
    serial: 0x7000 + level,
    issuer: { name: nameOf(parent.commonName), key: parent.key },
    life: {
      from: new Date(MADE_AT.getTime() - beforeMs),
      to: new Date(MADE_AT.getTime() + afterMs),
    },
    subject: nameOf(commonName),
    key,
    extensions,
  })
}

/** The key of the certificate at `level`; the leaf's key signs documents. */
export function keyAt(level: number): KeyPair {
  return levelAt(level).key
}

type Level = {
  readonly commonName: string
  readonly key: KeyPair
  readonly extensions: readonly Uint8Array[]
  /** Validity around MADE_AT. */
  readonly beforeMs: number
  readonly afterMs: number
}

const SECOND_MS = 1000
const HOUR_MS = 3600 * SECOND_MS
const DAY_MS = 24 * HOUR_MS

const { digitalSignature, nonRepudiation, keyCertSign, cRLSign } = KEY_USAGE_BITS
const authorityUsage = keyUsage(digitalSignature | keyCertSign | cRLSign)

const LEVELS: readonly Level[] = [
  {
    commonName: 'test.nitro-enclaves',
    key: generateKey(),
    extensions: [authorityConstraints(null), authorityUsage],
    beforeMs: 10 * 365 * DAY_MS,
    afterMs: 20 * 365 * DAY_MS,
  },
  {
    commonName: '0011223344556677.test-region-1.test.nitro-enclaves',
    key: generateKey(),
    extensions: [authorityConstraints(2), authorityUsage],
    beforeMs: 10 * DAY_MS,
    afterMs: 10 * DAY_MS,
  },
  {
    commonName: '8899aabbccddeeff.zonal.test-region-1.test.nitro-enclaves',
    key: generateKey(),
    extensions: [authorityConstraints(1), authorityUsage],
    beforeMs: 3 * DAY_MS,
    afterMs: 3 * DAY_MS,
  },
  {
    commonName: `${INSTANCE_ID}.test-region-1.test.nitro-enclaves`,
    key: generateKey(),
    extensions: [authorityConstraints(0), keyUsage(keyCertSign)],
    beforeMs: 12 * HOUR_MS,
    afterMs: 12 * HOUR_MS,
  },
  {
    commonName: `${MODULE_ID}.test-region-1.test`,
    key: generateKey(),
    extensions: [leafConstraints(), keyUsage(digitalSignature | nonRepudiation, false)],
    beforeMs: HOUR_MS,
    afterMs: 2 * HOUR_MS,
  },
]

function levelAt(index: number): Level {
  const level = LEVELS[index]
  if (!level) throw new RangeError(`expected a level from 0 to 4, got ${index}`)
  return level
}
