import type { SignedText, TdxCollateral } from '#attestation/providers/tdx/collateral.ts'
import { type Period, type SigningKey, toPem } from '../x509/certificate-builder.ts'
import { buildList } from '../x509/revocation-list.ts'
import { FMSPC, type IntelPki, PCE_SVN, PLATFORM_SVNS } from './intel-pki.ts'
import { QE_SIGNER, signRaw } from './tdx-quote.ts'

const CURRENT = { tcbDate: '2026-01-01T00:00:00Z', tcbStatus: 'UpToDate' }

export function currentLevel(tcb: object) {
  return { tcb, ...CURRENT }
}

const MODULE = {
  mrsigner: '00'.repeat(48),
  attributes: '00'.repeat(8),
  attributesMask: 'FF'.repeat(8),
}
const components = (svns: readonly number[]) => svns.map((svn) => ({ svn }))

/** The TCB level of the simulated platform. */
export const PLATFORM_TCB = {
  sgxtcbcomponents: components(PLATFORM_SVNS),
  pcesvn: PCE_SVN,
  tdxtcbcomponents: components([5, 0, 7, ...new Array<number>(13).fill(0)]),
}

export const MODULE_IDENTITY = {
  id: 'TDX_01',
  ...MODULE,
  tcbLevels: [currentLevel({ isvsvn: 5 })],
}

export function tcbInfoOf(period: Period) {
  return {
    id: 'TDX',
    version: 3,
    ...issueOf(period),
    tcbEvaluationDataNumber: EVALUATION_NUMBER,
    fmspc: FMSPC.toUpperCase(),
    pceId: '0000',
    tcbType: 0,
    tdxModule: MODULE,
    tdxModuleIdentities: [MODULE_IDENTITY],
    tcbLevels: [currentLevel(PLATFORM_TCB)],
  }
}

export function qeIdentityOf(period: Period) {
  return {
    id: 'TD_QE',
    version: 2,
    ...issueOf(period),
    tcbEvaluationDataNumber: EVALUATION_NUMBER,
    miscselect: '00000000',
    miscselectMask: 'FFFFFFFF',
    attributes: `11${'00'.repeat(15)}`,
    attributesMask: `FBFFFFFFFFFFFFFF${'00'.repeat(8)}`,
    mrsigner: Buffer.from(QE_SIGNER).toString('hex'),
    isvprodid: 2,
    tcbLevels: [currentLevel({ isvsvn: 4 })],
  }
}

function issueOf({ from, to }: Period) {
  return { issueDate: textOf(from), nextUpdate: textOf(to) }
}

/** The number of the simulated collateral. */
export const EVALUATION_NUMBER = 18

/** The numbers that Intel offers: the recovery of the newest is a year before the period. */
export function evaluationNumbersOf({ from, to }: Period) {
  const recovery = new Date(from.getTime() - 365 * 86_400_000)
  const entry = { tcbRecoveryEventDate: textOf(recovery), tcbDate: textOf(recovery) }
  return {
    id: 'TDX',
    version: 1,
    ...issueOf({ from, to }),
    tcbEvalNumbers: [{ tcbEvaluationDataNumber: EVALUATION_NUMBER, ...entry }],
  }
}

function textOf(date: Date): string {
  return date.toISOString().replace(/\.\d+Z$/, 'Z')
}

/** Signs as Intel's TCB signing key does. */
export function signText(
  value: object,
  { signer, issuerChain }: { readonly signer: SigningKey; readonly issuerChain: string },
): SignedText {
  const signed = new Uint8Array(Buffer.from(JSON.stringify(value)))
  return { signed, signature: signRaw(signer, signed), issuerChain }
}

/** All collateral that Intel would publish for the simulated platform. */
export function collateralOf(pki: IntelPki, period: Period): TdxCollateral {
  const issuerChain = toPem(pki.certificate('tcbSigning'), pki.certificate('root'))
  const signing = { signer: pki.key('tcbSigning'), issuerChain }
  return {
    tcbInfo: signText(tcbInfoOf(period), signing),
    qeIdentity: signText(qeIdentityOf(period), signing),
    rootCrl: buildList(pki.listOf('root', period)),
    pckCrl: buildList(pki.listOf('platformCa', period)),
    evaluationNumbers: signText(evaluationNumbersOf(period), signing),
  }
}

type IntelAnswer = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array | string
}

/** Returns the collateral in the form of answers from Intel's service. Sends no request. */
export function intelAnswersOf(collateral: TdxCollateral): readonly IntelAnswer[] {
  const { tcbInfo, qeIdentity, pckCrl, rootCrl, evaluationNumbers } = collateral
  const api = 'https://api.trustedservices.intel.com/'
  const bodyOf = (name: string, { signed, signature }: SignedText) =>
    `{"${name}":${Buffer.from(signed).toString()},"signature":"${Buffer.from(signature).toString('hex')}"}`
  return [
    {
      url: `${api}tdx/certification/v4/tcb?fmspc=${FMSPC}`,
      headers: { 'tcb-info-issuer-chain': encodeURIComponent(tcbInfo.issuerChain) },
      body: bodyOf('tcbInfo', tcbInfo),
    },
    {
      url: `${api}tdx/certification/v4/qe/identity`,
      headers: { 'sgx-enclave-identity-issuer-chain': encodeURIComponent(qeIdentity.issuerChain) },
      body: bodyOf('enclaveIdentity', qeIdentity),
    },
    {
      url: `${api}sgx/certification/v4/pckcrl?ca=platform&encoding=der`,
      headers: {},
      body: pckCrl,
    },
    ...(evaluationNumbers === null
      ? []
      : [
          {
            url: `${api}tdx/certification/v4/tcbevaluationdatanumbers`,
            headers: {
              'tcb-evaluation-data-numbers-issuer-chain': encodeURIComponent(
                evaluationNumbers.issuerChain,
              ),
            },
            body: bodyOf('tcbEvaluationDataNumbers', evaluationNumbers),
          },
        ]),
    {
      url: 'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der',
      headers: {},
      body: rootCrl,
    },
  ]
}
