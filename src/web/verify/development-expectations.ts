import { askText } from '../kit/gateway.ts'
import { holdDevelopment } from '../kit/tab-expectations.ts'
import { type Filled, NO_EXPECTATIONS } from './job.ts'

/** The page waits for the answer, so that it checks nothing twice at its start. */
const TIMEOUT_MS = 3_000

/**
 * On a page of a development gateway, takes what that gateway says about its own enclaves.
 * Elsewhere, in production and in a saved copy, asks nothing. Never rejects: without an answer the
 * page expects nothing. `readFile` gives the fields that a file fills, in a worker where the page
 * has one.
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
