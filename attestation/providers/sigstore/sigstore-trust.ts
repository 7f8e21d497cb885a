import { decodeBase64 } from '../../bytes.ts'

export type SigstoreTrust = {
  /** Certificates (DER, P-384) of the authorities that issue signing certificates. */
  readonly authorities: readonly Uint8Array<ArrayBuffer>[]
  /** SubjectPublicKeyInfo (DER, P-256) of transparency logs. The SHA-256 is the log's id. */
  readonly logs: readonly Uint8Array<ArrayBuffer>[]
  /** The same of logs of certificates (RFC 6962). */
  readonly certificateLogs: readonly Uint8Array<ArrayBuffer>[]
}

/** The accepted builder of the code. */
export type CodeIdentity = {
  /** OWNER/NAME on github.com. */
  readonly repository: string
  /** Accepted refs, such as refs/tags/v1.0.0; ANY_TAG is any tag. */
  readonly refs: readonly string[]
  /** Accepted SHA-256 of the signed artifact, hex. Null: not checked. */
  readonly digests: readonly string[] | null
}

/** The ref of an identity that accepts every tag. */
export const ANY_TAG = 'refs/tags/*'

/**
 * Sigstore's public instance: the intermediate authority of Fulcio since April 2022, the log
 * rekor.sigstore.dev, and the log of certificates ctfe.sigstore.dev/2022, in use since October
 * 2022. To check them: compare with `trusted_root.json` of github.com/sigstore/root-signing.
 */
export const SIGSTORE_TRUST: SigstoreTrust = {
  authorities: [
    derOf(
      'MIICGjCCAaGgAwIBAgIUALnViVfnU0brJasmRkHrn/UnfaQwCgYIKoZIzj0EAwMwKjEVMBMGA1UEChMMc2ln',
      'c3RvcmUuZGV2MREwDwYDVQQDEwhzaWdzdG9yZTAeFw0yMjA0MTMyMDA2MTVaFw0zMTEwMDUxMzU2NThaMDcx',
      'FTATBgNVBAoTDHNpZ3N0b3JlLmRldjEeMBwGA1UEAxMVc2lnc3RvcmUtaW50ZXJtZWRpYXRlMHYwEAYHKoZI',
      'zj0CAQYFK4EEACIDYgAE8RVS/ysH+NOvuDZyPIZtilgUF9NlarYpAd9HP1vBBH1U5CV77LSS7s0ZiH4nE7Hv',
      '7ptS6LvvR/STk798LVgMzLlJ4HeIfF3tHSaexLcYpSASr1kS0N/RgBJz/9jWCiXno3sweTAOBgNVHQ8BAf8E',
      'BAMCAQYwEwYDVR0lBAwwCgYIKwYBBQUHAwMwEgYDVR0TAQH/BAgwBgEB/wIBADAdBgNVHQ4EFgQU39Ppz1Yk',
      'EZb5qNjpKFWixi4YZD8wHwYDVR0jBBgwFoAUWMAeX5FFpWapesyQoZMi0CrFxfowCgYIKoZIzj0EAwMDZwAw',
      'ZAIwPCsQK4DYiZYDPIaDi5HFKnfxXx6ASSVmERfsynYBiX2X6SJRnZU84/9DZdnFvvxmAjBOt6QpBlc4J/0D',
      'xvkTCqpclvziL6BCCPnjdlIB3Pu3BxsPmygUY7Ii2zbdCdliiow=',
    ),
  ],
  logs: [
    derOf(
      'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE2G2Y+2tabdTV5BcGiBIx0a9fAFwrkBbmLSGtks4L3qX6yYY0',
      'zufBnhC8Ur/iy55GhWP/9A/bY2LhC30M9+RYtw==',
    ),
  ],
  certificateLogs: [
    derOf(
      'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEiPSlFi0CmFTfEjCUqF9HuCEcYXNKAaYalIJmBZ8yyezPjTqh',
      'xrKBpMnaocVtLJBI1eM3uXnQzQGAJdJ4gs9Fyw==',
    ),
  ],
}

function derOf(...lines: readonly string[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(decodeBase64(lines.join('')))
}
