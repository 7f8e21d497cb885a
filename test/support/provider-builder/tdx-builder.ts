import type { TdxCollateral } from '#attestation/providers/tdx/collateral.ts'
import type { TdxPolicy } from '#attestation/providers/tdx/tdx-policy.ts'
import type { TdxEvidence } from '#attestation/providers/tdx/verify-tdx-quote.ts'
import {
  currentLevel,
  evaluationNumbersOf,
  MODULE_IDENTITY,
  PLATFORM_TCB,
  qeIdentityOf,
  signText,
  tcbInfoOf,
} from '#src/local/tee/intel-collateral.ts'
import { FMSPC } from '#src/local/tee/intel-pki.ts'
import {
  BODY_OFFSETS,
  bodyOf,
  buildQuote,
  qeReportOf,
  quoteHeader,
  rawPoint,
  signRaw,
  uint,
} from '#src/local/tee/tdx-quote.ts'
import type { ListParts } from '#src/local/x509/revocation-list.ts'
import {
  type CertificateParts,
  generateKey,
  type KeyPair,
  toPem,
} from '../nitro-builder/certificate-builder.ts'
import {
  DEVELOPMENT_INTEL_ROOT,
  type IntelCertificate,
  intelCertificate,
  intelKey,
  intelList,
} from './intel-pki.ts'

export { signRaw }

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
  readonly evaluationNumbers?: Readonly<Record<string, unknown>>
  readonly textSigner?: KeyPair
  readonly issuerChain?: string
  readonly rootList?: Partial<ListParts>
  readonly pckList?: Partial<ListParts>
  readonly collateral?: (collateral: TdxCollateral) => TdxCollateral | null
}

const standardKey = generateKey('P-256')
export const MR_TD = new Uint8Array(48).fill(0xd1)
export const REPORT_DATA = new Uint8Array(64).fill(0x5d)

/** Evidence as a well-kept machine of the development root makes it, but for the changes. */
export function buildTdxEvidence(changes: TdxChanges = {}): TdxEvidence {
  return { quote: buildChangedQuote(changes), collateral: buildCollateral(changes) }
}

/** Accepts the builder's evidence, with every check made. */
export const TDX_POLICY: TdxPolicy = {
  measurements: [{ mrTd: MR_TD }],
  evaluationNumberMin: 18,
  evaluationNumberDays: 365,
  fmspcs: [FMSPC],
  reportData: REPORT_DATA,
  roots: [DEVELOPMENT_INTEL_ROOT],
}

function buildChangedQuote(changes: TdxChanges): Uint8Array<ArrayBuffer> {
  const { version = 4, attestationKey = standardKey, tdVersion = '1.0' } = changes
  const header = quoteHeader(version)
  changes.header?.(header)
  const body = bodyOf(tdVersion)
  body.set(MR_TD, BODY_OFFSETS.mrTd)
  body.set(REPORT_DATA, BODY_OFFSETS.reportData)
  changes.body?.(body)
  const descriptor =
    version === 5 ? [uint(tdVersion === '1.0' ? 2 : 3, 2), uint(body.length, 4)] : []
  const point = changes.point ?? rawPoint(attestationKey)
  const qeReport = qeReportOf(point)
  changes.qeReport?.(qeReport)
  const { root, platformCa, pck } = changes.certificates ?? {}
  const quote = buildQuote({
    signed: Buffer.concat([header, ...descriptor, body]),
    point,
    quoteSigner: changes.quoteSigner ?? attestationKey,
    qeReport,
    qeSigner: changes.qeSigner ?? intelKey('pck'),
    pem:
      changes.pem ??
      toPem(
        intelCertificate('pck', pck),
        intelCertificate('platformCa', platformCa),
        intelCertificate('root', root),
      ),
  })
  return new Uint8Array(changes.sealed?.(quote) ?? quote)
}

/** The `tcb` of a platform's level; the builder's platform reaches exactly this one. */
export function platformTcb(changed: Readonly<Record<string, unknown>> = {}) {
  return { ...PLATFORM_TCB, ...changed }
}

/** A TCB level with this `tcb`. */
export function levelOf(tcb: object, changed: Readonly<Record<string, unknown>> = {}) {
  return { ...currentLevel(tcb), ...changed }
}

/** The identity of module version 1. */
export function moduleIdentity(changed: Readonly<Record<string, unknown>> = {}) {
  return { ...MODULE_IDENTITY, ...changed }
}

/** Intel's texts live 30 days. */
const ISSUED = { from: new Date('2026-03-01T00:00:00Z'), to: new Date('2026-03-31T00:00:00Z') }

function buildCollateral(changes: TdxChanges): TdxCollateral | null {
  const { root, tcbSigning } = changes.certificates ?? {}
  const signing = {
    signer: changes.textSigner ?? intelKey('tcbSigning'),
    issuerChain:
      changes.issuerChain ??
      toPem(intelCertificate('tcbSigning', tcbSigning), intelCertificate('root', root)),
  }
  const collateral = {
    tcbInfo: signText({ ...tcbInfoOf(ISSUED), ...changes.tcbInfo }, signing),
    qeIdentity: signText({ ...qeIdentityOf(ISSUED), ...changes.qeIdentity }, signing),
    rootCrl: intelList('root', changes.rootList),
    pckCrl: intelList('platformCa', changes.pckList),
    evaluationNumbers: signText(
      { ...evaluationNumbersOf(ISSUED), ...changes.evaluationNumbers },
      signing,
    ),
  }
  return changes.collateral === undefined ? collateral : changes.collateral(collateral)
}
