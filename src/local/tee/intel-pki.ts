import {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  type Certified,
  certificateParts,
  developmentName,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  type Period,
  type SigningKey,
} from '../x509/certificate-builder.ts'
import {
  derInteger,
  encodeDer,
  objectIdentifier,
  octetString,
  sequence,
} from '../x509/der-encoder.ts'
import { emptyListOf, type ListParts } from '../x509/revocation-list.ts'

export type IntelCertificate = 'root' | 'platformCa' | 'pck' | 'tcbSigning'

const { digitalSignature, nonRepudiation, keyCertSign, cRLSign } = KEY_USAGE_BITS
const authorityUsage = keyUsage(keyCertSign | cRLSign)
const leafUsage = keyUsage(digitalSignature | nonRepudiation)

/** Family and model of the simulated platform, hex. */
export const FMSPC = 'b0c06f000000'
/** Security versions of the platform's components. */
export const PLATFORM_SVNS = [3, 3, 2, 2, 4, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0] as const
export const PCE_SVN = 11

const SGX = '1.2.840.113741.1.13.1'
const pair = (arc: string, value: Uint8Array) => sequence(objectIdentifier(`${SGX}.${arc}`), value)

/** `changed`: values that replace the defaults. Keys are arcs below `SGX`, such as `2.17`. */
export function sgxExtension(changed: Readonly<Record<string, Uint8Array>> = {}): Uint8Array {
  const components = PLATFORM_SVNS.map((svn, index) => [`2.${index + 1}`, derInteger(svn)] as const)
  const tcb: Record<string, Uint8Array> = {
    ...Object.fromEntries(components),
    '2.17': derInteger(PCE_SVN),
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

export function pckExtensions(content: Uint8Array): readonly Uint8Array[] {
  return [leafConstraints(), leafUsage, extension(SGX, { critical: false, value: content })]
}

type Profile = {
  readonly commonName: string
  readonly issuer: IntelCertificate
  readonly extensions: readonly Uint8Array[]
}

/** Verifiers demand the common names of Intel's certificates, except the root's name. */
const PROFILES: Readonly<Record<IntelCertificate, Profile>> = {
  root: {
    commonName: 'Development SGX Root CA',
    issuer: 'root',
    extensions: [authorityConstraints(1), authorityUsage],
  },
  platformCa: {
    commonName: 'Intel SGX PCK Platform CA',
    issuer: 'root',
    extensions: [authorityConstraints(0), authorityUsage],
  },
  pck: {
    commonName: 'Intel SGX PCK Certificate',
    issuer: 'platformCa',
    extensions: pckExtensions(sgxExtension()),
  },
  tcbSigning: {
    commonName: 'Intel SGX TCB Signing',
    issuer: 'root',
    extensions: [leafConstraints(), leafUsage],
  },
}

/** Serial numbers, for revocation lists. */
export const SERIALS = { root: 0x51, platformCa: 0x52, pck: 0x53, tcbSigning: 0x54 } as const

/** A hierarchy like Intel's. Only a policy that names its root trusts it. */
export type IntelPki = {
  readonly key: (name: IntelCertificate) => SigningKey
  /** DER. */
  readonly certificate: (name: IntelCertificate) => Uint8Array<ArrayBuffer>
  readonly partsOf: (name: IntelCertificate) => CertificateParts
  readonly listOf: (name: 'root' | 'platformCa', period: Period) => ListParts
}

/** Makes new keys, except for `root` if it is given. */
export function createIntelPki(life: Period, root?: Certified): IntelPki {
  const keys = {
    root: root?.key ?? generateKey('P-256'),
    platformCa: generateKey('P-256'),
    pck: generateKey('P-256'),
    tcbSigning: generateKey('P-256'),
  }
  const nameOf = (name: IntelCertificate) => developmentName(PROFILES[name].commonName)
  const partsOf = (name: IntelCertificate): CertificateParts => {
    const { extensions, issuer } = PROFILES[name]
    return certificateParts({
      serial: SERIALS[name],
      issuer: { name: nameOf(issuer), key: keys[issuer] },
      life,
      subject: nameOf(name),
      key: keys[name],
      extensions,
    })
  }
  const certificates = {
    root: root?.certificate ?? buildCertificate(partsOf('root')),
    platformCa: buildCertificate(partsOf('platformCa')),
    pck: buildCertificate(partsOf('pck')),
    tcbSigning: buildCertificate(partsOf('tcbSigning')),
  }
  return {
    key: (name) => keys[name],
    certificate: (name) => certificates[name],
    partsOf,
    listOf: (name, period) => emptyListOf({ name: nameOf(name), key: keys[name] }, period),
  }
}
