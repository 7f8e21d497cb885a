import { encodeHex } from '#attestation/bytes.ts'
import {
  type ClaimedHardware,
  readClaimedHardware,
} from '#attestation/providers/evidence/claimed-hardware.ts'
import type {
  KeptResponse,
  ProviderKind,
} from '#attestation/providers/evidence/evidence-document.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import { decodeSnpReport } from '#attestation/providers/snp/report.ts'
import { decodeTcb, productOfCpu, TCB_PARTS } from '#attestation/providers/snp/tcb.ts'
import { readPckClaims } from '#attestation/providers/tdx/pck.ts'
import { decodeTdxQuote } from '#attestation/providers/tdx/quote.ts'
import type { Logger } from '../observability/logger.ts'
import { FetchFault } from './fetch-over-tls.ts'
import type { CollateralOrigins, NamedBuild } from './settings.ts'

/**
 * Logs and leaves out collateral that cannot be fetched. `isComplete`: every part was fetched.
 * Throws only the error of an aborted `fetch`.
 */
export async function fetchCollateral(
  answer: {
    readonly provider: string
    readonly kind: ProviderKind
    readonly build: NamedBuild | null
    readonly body: Uint8Array
  },
  {
    origins,
    fetch,
    log,
  }: {
    readonly origins: CollateralOrigins
    readonly fetch: (href: string) => Promise<KeptResponse>
    readonly log: Logger
  },
): Promise<{ readonly kept: readonly KeptResponse[]; readonly isComplete: boolean }> {
  const { provider, kind, build, body } = answer
  const skip = (error: unknown, url: string | null) => {
    if (!(error instanceof FetchFault) && !(error instanceof ProviderEvidenceError)) throw error
    log.warn({ provider, url, code: error.code }, 'collateral of a provider left out')
    return []
  }
  let urls: readonly string[] = []
  try {
    const claimed = await readClaimedHardware(kind, body)
    urls = [
      ...(await hardwareUrls(claimed, origins)),
      ...(build === null || claimed.collateral.sigstore !== null ? [] : [buildUrl(build, origins)]),
    ]
  } catch (error) {
    skip(error, null)
  }
  const answers = await Promise.all(
    urls.map(async (url) => {
      try {
        return [await fetch(url)]
      } catch (error) {
        return skip(error, url)
      }
    }),
  )
  const kept = answers.flat()
  return { kept, isComplete: kept.length === urls.length }
}

async function hardwareUrls(
  { hardware, collateral }: ClaimedHardware,
  origins: CollateralOrigins,
): Promise<readonly string[]> {
  switch (hardware?.tee) {
    case 'TDX':
      return collateral.tdx === null ? await tdxUrls(hardware.quote, origins) : []
    case 'SEV-SNP':
      return collateral.snp === null || collateral.snpList === null
        ? snpUrls(hardware.report, origins)
        : []
    case undefined:
      return []
  }
}

/** Intel's Provisioning Certification Service, version 4. */
async function tdxUrls(
  quote: Uint8Array,
  { pcs, certificates }: CollateralOrigins,
): Promise<readonly string[]> {
  const leaf = decodeTdxQuote(quote).pckChain.at(-1) ?? new Uint8Array()
  const { fmspc, authority } = await readPckClaims(leaf)
  return [
    `${pcs}/tdx/certification/v4/tcb?fmspc=${fmspc}`,
    `${pcs}/tdx/certification/v4/qe/identity`,
    `${pcs}/tdx/certification/v4/tcbevaluationdatanumbers`,
    `${pcs}/sgx/certification/v4/pckcrl?ca=${authority}&encoding=der`,
    `${certificates}/IntelSGXRootCA.der`,
  ]
}

/** AMD's names for the parts of a TCB, as its service expects them in a query (AMD 57230). */
const SPL_NAMES = {
  fmc: 'fmcSPL',
  bootloader: 'blSPL',
  tee: 'teeSPL',
  snp: 'snpSPL',
  microcode: 'ucodeSPL',
} as const

/** Bytes of the chip's id in the address of its certificate. */
const CHIP_ID_BYTES = { Milan: 64, Genoa: 64, Turin: 8 } as const

/**
 * Returns URLs of AMD's Key Distribution Service. Returns an empty list for a report before version
 * 3, which names no product, and for a report that the provider's key (VLEK) signed.
 */
function snpUrls(report: Uint8Array, { kds }: CollateralOrigins): readonly string[] {
  const { cpu, signer, chipId, tcb } = decodeSnpReport(report)
  if (cpu === null || signer === 'VLEK') return []
  const product = productOfCpu(cpu)
  const parts = decodeTcb(tcb.reported, product)
  const levels = TCB_PARTS.flatMap((part) => {
    const level = parts[part]
    return level === undefined ? [] : [`${SPL_NAMES[part]}=${String(level).padStart(2, '0')}`]
  })
  const chip = encodeHex(chipId.subarray(0, CHIP_ID_BYTES[product]))
  const base = `${kds}/vcek/v1/${product}`
  return [`${base}/cert_chain`, `${base}/${chip}?${levels.join('&')}`, `${base}/crl`]
}

function buildUrl({ repository, digest }: NamedBuild, { builds }: CollateralOrigins): string {
  return `${builds}/repos/${repository}/attestations/sha256:${digest}`
}
