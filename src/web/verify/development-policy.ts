import { askText } from '../kit/gateway.ts'
import { holdDevelopment } from '../kit/tab-policy.ts'
import { type Filled, NO_POLICY } from './job.ts'

/** How long the page waits for the answer. A later answer would need a second check. */
const TIMEOUT_MS = 3_000

/**
 * On a page from a development gateway, requests what the gateway states about its own enclaves.
 * Never rejects: without an answer, the page has no policy. `readFile` returns the form
 * fields that a file fills.
 */
export async function takeDevelopmentPolicy(
  readFile: (file: File) => Promise<Filled>,
): Promise<void> {
  if (document.querySelector('meta[name="affidavit-development"]') === null) return
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS)
    const text = await askText('/development/policy', { signal })
    holdDevelopment({ ...NO_POLICY, ...(await readFile(new File([text], 'policy.json'))) })
  } catch (fault) {
    console.warn('the development gateway gave no policy', fault)
  }
}
