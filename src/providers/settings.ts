import { z } from 'zod'
import { ownMembers } from '#attestation/own-members.ts'
import {
  PROVIDER_KINDS,
  type ProviderKind,
} from '#attestation/providers/evidence/evidence-document.ts'
import { integer, textField, url } from '../runtime/fields.ts'

const HOUR_MS = 3_600_000

/** A signed build that a provider's documents do not carry themselves. */
export type NamedBuild = { readonly repository: string; readonly digest: string }

type ConfiguredEvidence = {
  readonly kind: ProviderKind
  /** Null: no build is fetched. */
  readonly build: NamedBuild | null
}

const kind = z.enum(PROVIDER_KINDS)
const attestedProviders = z.record(
  z.string().regex(/^[a-z0-9][a-z0-9._-]{0,63}$/),
  z.union([
    kind.transform((one): ConfiguredEvidence => ({ kind: one, build: null })),
    z
      .strictObject({
        kind,
        repository: z.string().regex(/^[A-Za-z0-9-]{1,39}\/(?!\.)[A-Za-z0-9._-]{1,100}$/),
        digest: z.string().regex(/^[0-9a-f]{64}$/),
      })
      .transform(
        ({ repository, digest, ...one }): ConfiguredEvidence => ({
          ...one,
          build: { repository, digest },
        }),
      ),
  ]),
)

/** These variables are a part of src/config.ts. */
export const PROVIDER_FIELDS = {
  /**
   * Providers in a TEE, as JSON: the name in the enclave's provider table, and the kind of its
   * evidence (tinfoil, dstack, aci, nitro): `{"tinfoil":"tinfoil"}`. The gateway collects the
   * evidence and serves it at `/v1/providers`. A value may also be
   * `{"kind":…,"repository":"OWNER/NAME","digest":HEX}`. The signed build with that digest is then
   * fetched from GITHUB_ATTESTATIONS_URL, for documents that do not carry it. Default: no provider.
   */
  ATTESTED_PROVIDERS: textField
    .transform((text, context) => {
      const parsed = attestedProviders.safeParse(jsonOf(text))
      if (parsed.success) return parsed.data
      context.addIssue({
        code: 'custom',
        message: `expected a JSON object of providers' names, each with one of ${PROVIDER_KINDS.join(', ')}, or with kind, repository and digest`,
      })
      return z.NEVER
    })
    .optional(),
  /**
   * How often each provider's evidence is collected, hours. Evidence that ends earlier is collected
   * earlier. Default 6: a policy accepts evidence of the last 24 hours unless it says otherwise, so
   * three tries in a row may fail.
   */
  PROVIDER_EVIDENCE_HOURS: integer({ min: 1, max: 168 }).default(6),
  /**
   * Origin of Intel's Provisioning Certification Service, or of a mirror: TCB info, QE identity and
   * revocation lists. Default https://api.trustedservices.intel.com.
   */
  INTEL_PCS_URL: originField().default('https://api.trustedservices.intel.com'),
  /** Origin of the revocation list of Intel's root. Default Intel's own. */
  INTEL_CERTIFICATES_URL: originField().default('https://certificates.trustedservices.intel.com'),
  /**
   * Origin of AMD's Key Distribution Service, or of a mirror: certificates of chips, and revocation
   * lists. Default https://kdsintf.amd.com.
   */
  AMD_KDS_URL: originField().default('https://kdsintf.amd.com'),
  /** Origin of GitHub's API, or of a mirror: signed builds. Default https://api.github.com. */
  GITHUB_ATTESTATIONS_URL: originField().default('https://api.github.com'),
}

type Settings = z.output<z.ZodObject<typeof PROVIDER_FIELDS>>

export type CollateralOrigins = Readonly<Record<'pcs' | 'certificates' | 'kds' | 'builds', string>>

export type ProvidersConfig = {
  /** By the name in the enclave's provider table. */
  readonly attested: ReadonlyMap<string, ConfiguredEvidence>
  readonly intervalMs: number
  readonly origins: CollateralOrigins
}

export function collectionOf(settings: Settings): ProvidersConfig {
  return {
    attested: new Map(Object.entries(ownMembers(settings.ATTESTED_PROVIDERS ?? {}))),
    intervalMs: settings.PROVIDER_EVIDENCE_HOURS * HOUR_MS,
    origins: {
      pcs: settings.INTEL_PCS_URL,
      certificates: settings.INTEL_CERTIFICATES_URL,
      kds: settings.AMD_KDS_URL,
      builds: settings.GITHUB_ATTESTATIONS_URL,
    },
  }
}

function originField() {
  return url(['https']).refine((text) => new URL(text).origin === text, {
    error: 'expected an https origin such as https://pcs.example:8081, without a path',
  })
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
