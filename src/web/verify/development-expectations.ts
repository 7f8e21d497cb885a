import { askText } from '../kit/gateway.ts'
import { holdDevelopment } from '../kit/tab-expectations.ts'
import { NO_EXPECTATIONS } from './job.ts'

/** The page waits for it, so that nothing is checked twice at its start. */
const TIMEOUT_MS = 3_000

/**
 * On a page of a development gateway, takes what that gateway says of its own enclaves. Elsewhere,
 * in production and in a saved copy, asks nothing. Never rejects: without an answer the page
 * expects nothing.
 */
export async function takeDevelopmentExpectations(): Promise<void> {
  if (document.querySelector('meta[name="affidavit-development"]') === null) return
  try {
    const [text, { fillExpectations, readExpectedFile }] = await Promise.all([
      askText('/development/expectations', { signal: AbortSignal.timeout(TIMEOUT_MS) }),
      import('./expected-files.ts'),
    ])
    const file = readExpectedFile('expect.json', new TextEncoder().encode(text))
    holdDevelopment({ ...NO_EXPECTATIONS, ...fillExpectations(file) })
  } catch (fault) {
    console.warn('the development gateway gave no expectations', fault)
  }
}
