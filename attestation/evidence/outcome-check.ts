import type { Receipt } from '../receipt.ts'
import type { Finding } from './finding.ts'

/**
 * Checks that the answer is whole, or that it was cut in a way that the reader accepts. Nothing
 * shows what was cut off. So any other cut answer leaves this check open, and its bundle is not
 * verified.
 *
 * Does NOT prove who cut it: `client_disconnected` is what the enclave saw of its gateway, which
 * may have done it on purpose.
 */
export function checkOutcome({ outcome }: Receipt, accepted: readonly Receipt['outcome'][] = []): Finding {
  if (outcome === 'complete') return 'complete: the answer has its end'
  const cut = `${outcome}: the answer was cut, ${CAUSES[outcome]}`
  return accepted.includes(outcome)
    ? `${cut}; accepted as such`
    : { notChecked: `${cut}; what is missing is not shown` }
}

const CAUSES: Readonly<Record<Exclude<Receipt['outcome'], 'complete'>, string>> = {
  client_disconnected: 'by its caller or by the gateway',
  upstream_error: 'by its provider, or on the way there',
}
