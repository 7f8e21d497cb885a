import { askText } from '../kit/gateway.ts'
import { holdDevelopment } from '../kit/tab-expectations.ts'
import { type Filled, NO_EXPECTATIONS } from './job.ts'

/**
 * Time limit for the answer. The page waits for it, so that it does not check twice at the start.
 */
const TIMEOUT_MS = 3_000

/**
 * On a page of a development gateway, fetches what the gateway says about its own enclaves. On
 * other pages, in production and in a saved copy, it asks nothing. Never rejects: when there is no
 * answer, the page expects nothing. `readFile` gives the fields that a file fills; it runs in a
 * worker if the page has one.
 */
export async function takeDevelopmentExpectations(
  readFile: (file: File) => Promise<Filled>,
): Promise<void> {
  if (document.querySelector('meta[name="affidavit-development"]') === null) return
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS)
    const text = await askText('/development/expectations', { signal })
    holdDevelopment({ ...NO_EXPECTATIONS, ...(await readFile(new File([text], 'expect.json'))) })
  } catch (fault) {
    console.warn('the development gateway gave no expectations', fault)
  }
}
