import { decodeBase64 } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { isJsonArray, type Json, memberAt } from '../../json/value.ts'
import { parsePemChain } from '../provider-chain.ts'
import type { SnpCertificates } from '../snp/chain.ts'
import { readSignedResponse, type TdxCollateral } from '../tdx/collateral.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'
import type { KeptResponse } from './evidence-document.ts'

/** A part is null if it was not kept. */
export type KeptCollateral = {
  readonly tdx: TdxCollateral | null
  readonly snp: SnpCertificates | null
  /** The revocation list of AMD's root, DER. */
  readonly snpList: Uint8Array | null
  /** The Sigstore bundle of the code. */
  readonly sigstore: Json | null
}

/**
 * Finds collateral in attacker-controlled answers. For each kind, takes the first answer that has
 * status 200 and a matching URL path. Does not check hosts, because all collateral is signed.
 * Verifies no signature. Throws ProviderEvidenceError.
 */
export function readKeptCollateral(kept: readonly KeptResponse[]): KeptCollateral {
  const find = (path: RegExp) =>
    kept.find(({ url, status }) => status === 200 && path.test(new URL(url).pathname))
  const amd = /^\/v[cl]ek\/v1\/[A-Za-z]+\//
  const chain = find(new RegExp(`${amd.source}cert_chain$`))
  const vek = find(new RegExp(`${amd.source}[0-9a-f]{16,128}$`))
  const sigstore = find(/\/attestations\/sha256:[0-9a-f]{64}$/)
  return {
    tdx: readTdx({
      tcb: find(/\/tdx\/certification\/v4\/tcb$/),
      identity: find(/\/tdx\/certification\/v4\/qe\/identity$/),
      numbers: find(/\/tdx\/certification\/v4\/tcbevaluationdatanumbers$/),
      pckCrl: find(/\/sgx\/certification\/v4\/pckcrl$/),
      rootCrl: find(/\/sgx\/certification\/v4\/rootcacrl$|\/IntelSGXRootCA\.der$/),
    }),
    snp:
      chain && vek ? snpCertificates(vek.body, new TextDecoder('latin1').decode(chain.body)) : null,
    snpList: find(new RegExp(`${amd.source}crl$`))?.body ?? null,
    sigstore: sigstore ? readSigstore(sigstore.body) : null,
  }
}

type TdxAnswer = 'tcb' | 'identity' | 'numbers' | 'pckCrl' | 'rootCrl'

function readTdx({
  tcb,
  identity,
  numbers,
  pckCrl,
  rootCrl,
}: Readonly<Record<TdxAnswer, KeptResponse | undefined>>): TdxCollateral | null {
  if (!tcb || !identity || !pckCrl || !rootCrl) return null
  return {
    tcbInfo: readSignedResponse(tcb.body, {
      member: 'tcbInfo',
      issuerChain: tcb.headers.get('tcb-info-issuer-chain') ?? '',
    }),
    qeIdentity: readSignedResponse(identity.body, {
      member: 'enclaveIdentity',
      issuerChain: identity.headers.get('sgx-enclave-identity-issuer-chain') ?? '',
    }),
    rootCrl: rootCrl.body,
    pckCrl: pckCrl.body,
    evaluationNumbers: numbers
      ? readSignedResponse(numbers.body, {
          member: 'tcbEvaluationDataNumbers',
          issuerChain: numbers.headers.get('tcb-evaluation-data-numbers-issuer-chain') ?? '',
        })
      : null,
  }
}

/** `pem` has AMD's intermediate authority, then the root. */
function snpCertificates(vek: Uint8Array, pem: string): SnpCertificates {
  const [ask, ark, ...others] = parsePemChain(pem, 'cert_chain')
  if (!ask || !ark || others.length > 0)
    throw refuseEvidence('collateral_malformed', 'expected a chain of two certificates')
  return { vek, ask, ark }
}

/** The body is a bundle, or an answer of GitHub with bundles. */
function readSigstore(body: Uint8Array): Json {
  const json = parsedAs('collateral_malformed', () => parseExactJson(body))
  const list = memberAt(json, 'attestations')
  return (isJsonArray(list) ? memberAt(list[0], 'bundle') : undefined) ?? json
}

const { arrayOf, invalid, objectOf, textOf } = formsOf('collateral_malformed')
const TINFOIL = 'https://tinfoil.sh/collateral/'
const ENTRIES_MAX = 32

/**
 * Replaces each null in `kept` by the collateral in version 3 of Tinfoil's document. Throws
 * ProviderEvidenceError.
 */
export function readTinfoilCollateral(json: Json, kept: KeptCollateral): KeptCollateral {
  return parsedAs('collateral_malformed', () => {
    const entries = arrayOf(json, 'collateral', { min: 0, max: ENTRIES_MAX })
    const find = (format: string) => {
      const entry = entries.find((one) => memberAt(one, 'format') === `${TINFOIL}${format}/v1`)
      return entry === undefined ? null : objectOf(memberAt(entry, 'data'), format)
    }
    const [vcek, list, pcs, code] = [
      find('amd-vcek'),
      find('amd-crl'),
      find('intel-pcs'),
      find('sigstore-code'),
    ]
    const intel = pcs === null ? null : readKeptCollateral(pcsResponses(pcs.responses)).tdx
    return {
      tdx: kept.tdx ?? intel,
      snp:
        kept.snp ??
        (vcek &&
          snpCertificates(
            base64Of(vcek.vcek_der_base64, 'vcek_der_base64'),
            textOf(vcek.cert_chain_pem, 'cert_chain_pem'),
          )),
      snpList: kept.snpList ?? (list && base64Of(list.crl_der_base64, 'crl_der_base64')),
      sigstore: kept.sigstore ?? code?.sigstore_bundle ?? null,
    }
  })
}

function base64Of(json: Json | undefined, name: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(decodeBase64(textOf(json, name)))
}

function pcsResponses(json: Json | undefined): readonly KeptResponse[] {
  return arrayOf(json, 'responses', { min: 0, max: ENTRIES_MAX }).map((item) => {
    const url = textOf(memberAt(item, 'url'), 'url')
    if (!URL.canParse(url)) throw invalid('url', 'a URL')
    // Go writes a map that was never created (a nil map) as null.
    const headers = Object.entries(objectOf(memberAt(item, 'headers') ?? {}, 'headers'))
    return {
      url,
      status: 200,
      headers: new Map(
        headers.map(([name, value]) => [
          name.toLowerCase(),
          textOf(isJsonArray(value) ? value[0] : value, 'a header'),
        ]),
      ),
      body: base64Of(memberAt(item, 'body_base64'), 'body_base64'),
    }
  })
}
