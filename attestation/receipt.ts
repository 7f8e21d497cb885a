/** What the enclave states of one completion beyond the five proof fields (design.md, Receipt). */
export type Receipt = {
  readonly version: 1
  /** Index of the leaf in the notary's log. */
  readonly index: number
  readonly hash: string
  readonly request_hash: string
  readonly response_hash: string
  readonly forwarded_hash: string
  readonly received_hash: string
  readonly provider: {
    readonly name: string
    readonly origin: string
    readonly tls: ReceiptTls | null
  }
  readonly model: { readonly requested: string; readonly returned: string | null }
  readonly outcome: 'complete' | 'client_disconnected' | 'upstream_error'
  /** Unix milliseconds, the enclave's clock. */
  readonly started_at: number
  readonly finished_at: number
}

/** Whose TLS key answered. `subject` and `issuer` are one-line distinguished names. */
export type ReceiptTls = {
  readonly protocol: string
  readonly spki_sha256: string
  readonly subject: string
  readonly issuer: string
}
