import { webcrypto } from 'node:crypto'
import { isIP } from 'node:net'
import { Integer, OctetString, Utf8String } from 'asn1js'
import {
  AltName,
  AttributeTypeAndValue,
  BasicConstraints,
  Certificate,
  CryptoEngine,
  Extension,
  GeneralName,
  GeneralNames,
} from 'pkijs'

/** A certificate with its key, PEM, as node:tls takes them. */
export type TestCertificate = { readonly certificate: string; readonly key: string }

/** A certificate authority for tests. */
export type TestAuthority = {
  /** PEM, for clients that should trust it. */
  readonly certificate: string
  /** Issues a server certificate for host names and IP addresses. */
  issue(options: IssueOptions): Promise<TestCertificate>
}

export type IssueOptions = {
  readonly hosts: readonly string[]
  /** Default: from an hour ago until a day from now. */
  readonly validity?: { readonly notBefore: Date; readonly notAfter: Date }
}

const engine = new CryptoEngine({ name: 'node', crypto: webcrypto })
const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256' } as const
const HOUR_MS = 3_600_000

/** Makes a new authority; its key exists in this process alone. */
export async function createAuthority(commonName = 'Test authority'): Promise<TestAuthority> {
  const keys = await makeKeys()
  const certificate = await draft({
    subject: commonName,
    issuer: commonName,
    publicKey: keys.publicKey,
  })
  certificate.extensions = [basicConstraints(true)]
  await certificate.sign(keys.privateKey, 'SHA-256', engine)
  return {
    certificate: toPem('CERTIFICATE', certificate.toSchema(true).toBER()),
    issue: (options) => issueLeaf({ commonName, key: keys.privateKey }, options),
  }
}

async function issueLeaf(
  issuer: { readonly commonName: string; readonly key: webcrypto.CryptoKey },
  options: IssueOptions,
): Promise<TestCertificate> {
  const keys = await makeKeys()
  const subject = options.hosts[0] ?? 'nobody'
  const leaf = await draft({
    subject,
    issuer: issuer.commonName,
    publicKey: keys.publicKey,
    ...options,
  })
  leaf.extensions = [basicConstraints(false), alternativeNames(options.hosts)]
  await leaf.sign(issuer.key, 'SHA-256', engine)
  return {
    certificate: toPem('CERTIFICATE', leaf.toSchema(true).toBER()),
    key: toPem('PRIVATE KEY', await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)),
  }
}

async function makeKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
}

type Draft = {
  readonly subject: string
  readonly issuer: string
  readonly publicKey: webcrypto.CryptoKey
  readonly validity?: IssueOptions['validity']
}

async function draft({ subject, issuer, publicKey, validity }: Draft): Promise<Certificate> {
  const certificate = new Certificate()
  certificate.version = 2
  const serial = webcrypto.getRandomValues(new Uint8Array(12))
  serial[0] = 0x40
  certificate.serialNumber = new Integer({ valueHex: serial.buffer })
  certificate.subject.typesAndValues.push(commonNameOf(subject))
  certificate.issuer.typesAndValues.push(commonNameOf(issuer))
  certificate.notBefore.value = validity?.notBefore ?? new Date(Date.now() - HOUR_MS)
  certificate.notAfter.value = validity?.notAfter ?? new Date(Date.now() + 24 * HOUR_MS)
  await certificate.subjectPublicKeyInfo.importKey(publicKey, engine)
  return certificate
}

/**
 * Object identifiers of RFC 5280: id-at-commonName, id-ce-basicConstraints, id-ce-subjectAltName.
 */
const OIDS = { commonName: '2.5.4.3', basicConstraints: '2.5.29.19', subjectAltName: '2.5.29.17' }

function commonNameOf(value: string): AttributeTypeAndValue {
  return new AttributeTypeAndValue({ type: OIDS.commonName, value: new Utf8String({ value }) })
}

function basicConstraints(isAuthority: boolean): Extension {
  const value = new BasicConstraints({ cA: isAuthority })
  return new Extension({
    extnID: OIDS.basicConstraints,
    critical: true,
    extnValue: value.toSchema().toBER(),
    parsedValue: value,
  })
}

/** GeneralName choices of RFC 5280, 4.2.1.6: 2 is dNSName, 7 iPAddress. */
function alternativeNames(hosts: readonly string[]): Extension {
  const names = hosts.map((host) =>
    isIP(host) === 4
      ? new GeneralName({
          type: 7,
          value: new OctetString({ valueHex: Uint8Array.from(host.split('.'), Number).buffer }),
        })
      : new GeneralName({ type: 2, value: host }),
  )
  const value = new AltName({ altNames: names })
  const schema = new GeneralNames({ names }).toSchema()
  return new Extension({
    extnID: OIDS.subjectAltName,
    extnValue: schema.toBER(),
    parsedValue: value,
  })
}

function toPem(label: string, der: ArrayBuffer): string {
  const lines =
    Buffer.from(der)
      .toString('base64')
      .match(/.{1,64}/g) ?? []
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n')
}
