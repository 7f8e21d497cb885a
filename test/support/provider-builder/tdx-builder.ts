import { createHash, sign } from 'node:crypto'
import type { SignedText, TdxCollateral } from '../../../attestation/providers/tdx/collateral.ts'
import type { TdxPolicy } from '../../../attestation/providers/tdx/tdx-policy.ts'
import type { TdxEvidence } from '../../../attestation/providers/tdx/verify-tdx-quote.ts'
import {
  type CertificateParts,
  generateKey,
  type KeyPair,
  publicKeyInfo,
} from '../nitro-builder/certificate-builder.ts'
import type { ListParts } from '../nitro-builder/crl-builder.ts'
import {
  DEVELOPMENT_INTEL_ROOT,
  FMSPC,
  type IntelCertificate,
  intelCertificate,
  intelKey,
  intelList,
  PCE_SVN,
  PLATFORM_SVNS,
  toPem,
} from './intel-pki.ts'

/** Everything of a quote and its collateral that a test can change, so that one rule is broken. */
export type TdxChanges = {
  readonly version?: 4 | 5
  readonly tdVersion?: '1.0' | '1.5'
  readonly certificates?: Partial<Record<IntelCertificate, Partial<CertificateParts>>>
  /** The PEM in the quote, in place of the chain. */
  readonly pem?: string
  /** Change bytes before they are signed. */
  readonly header?: (header: Uint8Array) => void
  readonly body?: (body: Uint8Array) => void
  readonly qeReport?: (report: Uint8Array) => void
  /** Changes the bytes after they were signed. */
  readonly sealed?: (quote: Uint8Array) => Uint8Array
  readonly attestationKey?: KeyPair
  /** The attestation key's x || y, in place of the key's own. */
  readonly point?: Uint8Array
  readonly quoteSigner?: KeyPair
  readonly qeSigner?: KeyPair
  readonly tcbInfo?: Readonly<Record<string, unknown>>
  readonly qeIdentity?: Readonly<Record<string, unknown>>
  readonly textSigner?: KeyPair
  readonly issuerChain?: string
  readonly rootList?: Partial<ListParts>
  readonly pckList?: Partial<ListParts>
  readonly collateral?: (collateral: TdxCollateral) => TdxCollateral | null
}

const standardKey = generateKey('P-256')
const AUTH_DATA = new Uint8Array(32).fill(0x0a)
export const MR_TD = new Uint8Array(48).fill(0xd1)
export const REPORT_DATA = new Uint8Array(64).fill(0x5d)
const QE_SIGNER = new Uint8Array(32).fill(0x9e)

/** Evidence as a well-kept machine of the development root makes it, but for the changes. */
export function buildTdxEvidence(changes: TdxChanges = {}): TdxEvidence {
  return { quote: buildQuote(changes), collateral: buildCollateral(changes) }
}

/** Accepts the builder's evidence, with every check made. */
export const TDX_POLICY: TdxPolicy = {
  measurements: [{ mrTd: MR_TD }],
  reportData: REPORT_DATA,
  roots: [DEVELOPMENT_INTEL_ROOT],
}

function buildQuote(changes: TdxChanges): Uint8Array<ArrayBuffer> {
  const { version = 4, attestationKey = standardKey, tdVersion = '1.0' } = changes
  const header = new Uint8Array(48)
  header.set([version, 0, 2, 0, 0x81])
  header.set(Buffer.from('939a7233f79c4ca9940a0db3957f0607', 'hex'), 12)
  changes.header?.(header)
  const body = standardBody(tdVersion)
  changes.body?.(body)
  const descriptor =
    version === 5 ? [uint(tdVersion === '1.0' ? 2 : 3, 2), uint(body.length, 4)] : []
  const signed = Buffer.concat([header, ...descriptor, body])
  const point = changes.point ?? rawPoint(attestationKey)
  const report = standardReport(point)
  changes.qeReport?.(report)
  const { root, platformCa, pck } = changes.certificates ?? {}
  const pem =
    changes.pem ??
    toPem(
      intelCertificate('pck', pck),
      intelCertificate('platformCa', platformCa),
      intelCertificate('root', root),
    )
  const certification = Buffer.concat([
    report,
    signRaw(changes.qeSigner ?? intelKey('pck'), report),
    uint(AUTH_DATA.length, 2),
    AUTH_DATA,
    uint(5, 2),
    uint(Buffer.byteLength(pem), 4),
    Buffer.from(pem),
  ])
  const data = Buffer.concat([
    signRaw(changes.quoteSigner ?? attestationKey, signed),
    point,
    uint(6, 2),
    uint(certification.length, 4),
    certification,
  ])
  const quote = new Uint8Array(Buffer.concat([signed, uint(data.length, 4), data]))
  return new Uint8Array(changes.sealed?.(quote) ?? quote)
}

function standardBody(tdVersion: '1.0' | '1.5'): Uint8Array {
  const body = new Uint8Array(tdVersion === '1.0' ? 584 : 648)
  // Version 1 of the module, SVN 5; component 2 is 7.
  body.set([5, 1, 7])
  body[123] = 0x10
  body.set([0xe7, 0x02, 0x06], 128)
  body.set(MR_TD, 136)
  body.set(REPORT_DATA, 520)
  return body
}

function standardReport(point: Uint8Array): Uint8Array {
  const report = new Uint8Array(384)
  report.set([0x11], 48)
  report.set(QE_SIGNER, 128)
  report.set([2, 0, 4, 0], 256)
  report.set(createHash('sha256').update(point).update(AUTH_DATA).digest(), 320)
  return report
}

const level = { tcbDate: '2026-01-01T00:00:00Z', tcbStatus: 'UpToDate' }
const module = {
  mrsigner: '00'.repeat(48),
  attributes: '00'.repeat(8),
  attributesMask: 'FF'.repeat(8),
}
const issue = {
  issueDate: '2026-03-01T00:00:00Z',
  nextUpdate: '2026-03-31T00:00:00Z',
  tcbEvaluationDataNumber: 18,
}
const components = (svns: readonly number[]) => svns.map((svn) => ({ svn }))

/** The `tcb` of a platform's level; the builder's platform reaches exactly this one. */
export function platformTcb(changed: Readonly<Record<string, unknown>> = {}) {
  return {
    sgxtcbcomponents: components(PLATFORM_SVNS),
    pcesvn: PCE_SVN,
    tdxtcbcomponents: components([5, 0, 7, ...new Array<number>(13).fill(0)]),
    ...changed,
  }
}

/** A TCB level with this `tcb`. */
export function levelOf(tcb: object, changed: Readonly<Record<string, unknown>> = {}) {
  return { tcb, ...level, ...changed }
}

/** The identity of module version 1. */
export function moduleIdentity(changed: Readonly<Record<string, unknown>> = {}) {
  return { id: 'TDX_01', ...module, tcbLevels: [levelOf({ isvsvn: 5 })], ...changed }
}

function standardTcbInfo() {
  return {
    id: 'TDX',
    version: 3,
    ...issue,
    fmspc: FMSPC.toUpperCase(),
    pceId: '0000',
    tcbType: 0,
    tdxModule: module,
    tdxModuleIdentities: [moduleIdentity()],
    tcbLevels: [levelOf(platformTcb())],
  }
}

function standardQeIdentity() {
  return {
    id: 'TD_QE',
    version: 2,
    ...issue,
    miscselect: '00000000',
    miscselectMask: 'FFFFFFFF',
    attributes: `11${'00'.repeat(15)}`,
    attributesMask: `FBFFFFFFFFFFFFFF${'00'.repeat(8)}`,
    mrsigner: Buffer.from(QE_SIGNER).toString('hex'),
    isvprodid: 2,
    tcbLevels: [levelOf({ isvsvn: 4 })],
  }
}

function buildCollateral(changes: TdxChanges): TdxCollateral | null {
  const { root, tcbSigning } = changes.certificates ?? {}
  const issuerChain =
    changes.issuerChain ??
    toPem(intelCertificate('tcbSigning', tcbSigning), intelCertificate('root', root))
  const textOf = (value: object): SignedText => {
    const signed = new Uint8Array(Buffer.from(JSON.stringify(value)))
    const signature = signRaw(changes.textSigner ?? intelKey('tcbSigning'), signed)
    return { signed, signature, issuerChain }
  }
  const collateral = {
    tcbInfo: textOf({ ...standardTcbInfo(), ...changes.tcbInfo }),
    qeIdentity: textOf({ ...standardQeIdentity(), ...changes.qeIdentity }),
    rootCrl: intelList('root', changes.rootList),
    pckCrl: intelList('platformCa', changes.pckList),
  }
  return changes.collateral === undefined ? collateral : changes.collateral(collateral)
}

/** r || s of ECDSA with SHA-256. */
export function signRaw({ privateKey }: KeyPair, data: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(sign('sha256', data, { key: privateKey, dsaEncoding: 'ieee-p1363' }))
}

function rawPoint(key: KeyPair): Uint8Array {
  return publicKeyInfo(key).slice(-64)
}

function uint(value: number, bytes: number): Uint8Array {
  const buffer = Buffer.alloc(bytes)
  buffer.writeUIntLE(value, 0, bytes)
  return buffer
}
