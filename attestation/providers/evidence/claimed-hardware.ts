import type { ProviderKind } from './evidence-document.ts'
import { readAciAnswer } from './judge-aci.ts'
import { readDstackAnswer } from './judge-dstack.ts'
import type { HardwareEvidence } from './judge-hardware.ts'
import {
  type KeptCollateral,
  readKeptCollateral,
  readTinfoilCollateral,
} from './kept-collateral.ts'
import { parseTinfoilDocument } from './tinfoil-document.ts'

export type ClaimedHardware = {
  /** Null for a kind of provider that needs no collateral. */
  readonly hardware: HardwareEvidence | null
  /** The collateral inside the answer. */
  readonly collateral: KeptCollateral
}

/**
 * Reads the hardware that an attacker-controlled answer claims, so that the caller can fetch its
 * collateral. Verifies nothing. Throws ProviderEvidenceError.
 */
export async function readClaimedHardware(
  kind: ProviderKind,
  body: Uint8Array,
): Promise<ClaimedHardware> {
  const none = readKeptCollateral([])
  switch (kind) {
    case 'tinfoil': {
      const { hardware, collateral: inside } = await parseTinfoilDocument(body)
      return { hardware, collateral: inside ? readTinfoilCollateral(inside, none) : none }
    }
    case 'dstack':
      return { hardware: quoteOf(readDstackAnswer(body)), collateral: none }
    case 'aci':
      return { hardware: quoteOf(readAciAnswer(body)), collateral: none }
    case 'nitro':
      return { hardware: null, collateral: none }
  }
}

function quoteOf({ quote }: { readonly quote: Uint8Array }): HardwareEvidence {
  return { tee: 'TDX', quote }
}
