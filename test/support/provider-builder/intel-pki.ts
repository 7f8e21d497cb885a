import { createHash } from 'node:crypto'
import {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  type KeyPair,
  keyUsage,
  leafConstraints,
  nameOf,
  publicKeyInfo,
  signWith,
  VERSION_3,
  validityOf,
} from '../nitro-builder/certificate-builder.ts'
import { type ListParts, listBy } from '../nitro-builder/crl-builder.ts'
import {
  encodeDer,
  integer,
  objectIdentifier,
  octetString,
  sequence,
} from '../nitro-builder/der-encoder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'

/** The certificates of a development root that has Intel's profiles. */
export type IntelCertificate = 'root' | 'platformCa' | 'pck' | 'tcbSigning'

export const ECDSA_SHA256 = sequence(objectIdentifier('1.2.840.10045.4.3.2'))
const YEAR_MS = 365 * 24 * 3_600_000
const { digitalSignature, nonRepudiation, keyCertSign, cRLSign } = KEY_USAGE_BITS
const authorityUsage = keyUsage(keyCertSign | cRLSign)
const leafUsage = keyUsage(digitalSignature | nonRepudiation)

export const FMSPC = 'b0c06f000000'
/** SVNs of the platform's components, and its PCESVN. */
export const PLATFORM_SVNS = [3, 3, 2, 2, 4, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0] as const
export const PCE_SVN = 11

const SGX = '1.2.840.113741.1.13.1'
const pair = (arc: string, value: Uint8Array) => sequence(objectIdentifier(`${SGX}.${arc}`), value)

/** The content of the SGX extension; `changed` replaces values by their arc below it. */
export function sgxExtension(changed: Readonly<Record<string, Uint8Array>> = {}): Uint8Array {
  const components = PLATFORM_SVNS.map((svn, index) => [`2.${index + 1}`, integer(svn)] as const)
  const tcb: Record<string, Uint8Array> = {
    ...Object.fromEntries(components),
    '2.17': integer(PCE_SVN),
    '2.18': octetString(Uint8Array.from(PLATFORM_SVNS)),
  }
  const values: Record<string, Uint8Array> = {
    1: octetString(new Uint8Array(16).fill(0x11)),
    2: sequence(...Object.entries(tcb).map(([arc, value]) => pair(arc, changed[arc] ?? value))),
    3: octetString(new Uint8Array(2)),
    4: octetString(Buffer.from(FMSPC, 'hex')),
    5: encodeDer(0x0a, Uint8Array.of(1)),
  }
  return sequence(...Object.entries(values).map(([arc, value]) => pair(arc, changed[arc] ?? value)))
}

type Profile = {
  readonly commonName: string
  readonly key: KeyPair
  readonly issuer: IntelCertificate
  readonly extensions: readonly Uint8Array[]
}

const PROFILES: Readonly<Record<IntelCertificate, Profile>> = {
  root: {
    commonName: 'Development SGX Root CA',
    key: generateKey('P-256'),
    issuer: 'root',
    extensions: [authorityConstraints(1), authorityUsage],
  },
  platformCa: {
    commonName: 'Intel SGX PCK Platform CA',
    key: generateKey('P-256'),
    issuer: 'root',
    extensions: [authorityConstraints(0), authorityUsage],
  },
  pck: {
    commonName: 'Intel SGX PCK Certificate',
    key: generateKey('P-256'),
    issuer: 'platformCa',
    extensions: [
      leafConstraints(),
      leafUsage,
      extension(SGX, { critical: false, value: sgxExtension() }),
    ],
  },
  tcbSigning: {
    commonName: 'Intel SGX TCB Signing',
    key: generateKey('P-256'),
    issuer: 'root',
    extensions: [leafConstraints(), leafUsage],
  },
}

/** The private and public key of a certificate. */
export function intelKey(name: IntelCertificate): KeyPair {
  return PROFILES[name].key
}

/** Numbers of the certificates: revocation lists name them. */
export const SERIALS = { root: 0x51, platformCa: 0x52, pck: 0x53, tcbSigning: 0x54 } as const

/** The extensions of a PCK certificate with this SGX extension. */
export function pckExtensions(content: Uint8Array): readonly Uint8Array[] {
  return [leafConstraints(), leafUsage, extension(SGX, { critical: false, value: content })]
}

/** DER of a certificate, with changed parts. Certificates without a change are made once. */
export function intelCertificate(
  name: IntelCertificate,
  changed?: Partial<CertificateParts>,
): Uint8Array<ArrayBuffer> {
  if (changed !== undefined) return buildCertificate({ ...partsOf(name), ...changed })
  const made = standard.get(name) ?? buildCertificate(partsOf(name))
  standard.set(name, made)
  return made
}

const standard = new Map<IntelCertificate, Uint8Array<ArrayBuffer>>()

function partsOf(name: IntelCertificate): CertificateParts {
  const { commonName, key, extensions, issuer } = PROFILES[name]
  const times = [new Date(MADE_AT.getTime() - YEAR_MS), new Date(MADE_AT.getTime() + YEAR_MS)]
  return {
    version: VERSION_3,
    serial: integer(SERIALS[name]),
    innerAlgorithm: ECDSA_SHA256,
    issuer: nameOf(PROFILES[issuer].commonName),
    validity: validityOf(times[0] ?? MADE_AT, times[1] ?? MADE_AT),
    subject: nameOf(commonName),
    publicKey: publicKeyInfo(key),
    extensions,
    extraFields: [],
    outerAlgorithm: ECDSA_SHA256,
    sign: signWith(PROFILES[issuer].key, 'sha256'),
  }
}

/** SHA-256 of the development root. Nothing trusts it but tests that pass it. */
export const DEVELOPMENT_INTEL_ROOT = new Uint8Array(
  createHash('sha256').update(intelCertificate('root')).digest(),
)

/** DER of a revocation list by a CA, with changed parts. */
export function intelList(
  name: 'root' | 'platformCa',
  changed: Partial<ListParts> = {},
): Uint8Array<ArrayBuffer> {
  const { commonName, key } = PROFILES[name]
  return listBy(
    { name: nameOf(commonName), key },
    {
      innerAlgorithm: ECDSA_SHA256,
      outerAlgorithm: ECDSA_SHA256,
      sign: signWith(key, 'sha256'),
      ...changed,
    },
  )
}

/** PEM of certificates, one after the other. */
export function toPem(...ders: readonly Uint8Array[]): string {
  return ders
    .map((der) => {
      const lines =
        Buffer.from(der)
          .toString('base64')
          .match(/.{1,64}/g) ?? []
      return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`
    })
    .join('')
}
