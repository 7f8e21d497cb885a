import { readFileSync } from 'node:fs'
import type { Page } from 'playwright-core'
import type { Demands, Verdict } from '../conformance/manifest.ts'

/** What the page reports on one source. */
export type PageReport = {
  /** `refused`: it could not be checked in this form. */
  readonly verdict: Verdict | 'refused'
  readonly sentence: string
  /** Names of checks; for a document, its code. */
  readonly failed: readonly string[]
  readonly notChecked: readonly string[]
  /** State of each link of the chain by its name; empty when there is no chain. */
  readonly links: Readonly<Record<string, string>>
}

/** Uses the page `/verify` as a reader does: with its fields and buttons. */
export type VerifyPageDriver = {
  /** Gives a file to be checked, and waits for the report. */
  check(source: string | { readonly name: string; readonly bytes: Uint8Array }): Promise<PageReport>
  /** Fills in the given policy, and empties the other fields. */
  expect(demands: Demands, fileOf: (path: string) => string): Promise<void>
  /** Selects the kind of the source. */
  take(kind: 'auto' | 'evidence' | 'document' | 'release' | 'image'): Promise<void>
  /** Asks the chain at `url` about the evidence that was given last. */
  askChain(url: string, confirmations?: number): Promise<PageReport>
}

/** Gives a driver of a page that shows `/verify`. It opens every part of the form. */
export async function driveVerifyPage(page: Page): Promise<VerifyPageDriver> {
  await page.locator('.panel').first().waitFor()
  for (const panel of await page.locator('.panel > summary').all()) await panel.click()
  let rounds = 0
  const before = new Map<string, string>()

  /** Only changed fields are filled in, as a reader would. */
  async function once(label: string, value: string, fill: () => Promise<void>): Promise<void> {
    if ((before.get(label) ?? '') === value) return
    before.set(label, value)
    await openForms()
    await fill()
  }
  /** Below a verdict the forms are folded. */
  const openForms = () => openDetails(page, '.forms')
  const text = (label: string, value: string) =>
    once(label, value, () => page.getByLabel(label, { exact: true }).fill(value))
  const files = (label: string, paths: readonly string[]) =>
    once(label, paths.join(), () =>
      page.getByLabel(label, { exact: true }).setInputFiles([...paths]),
    )
  const tick = (label: string, isTicked: boolean) =>
    once(label, isTicked ? 'yes' : '', () =>
      page.getByLabel(label, { exact: true }).setChecked(isTicked),
    )

  async function report(): Promise<PageReport> {
    const result = page.locator(`[data-round="${++rounds}"]`)
    await result.waitFor({ timeout: 60_000 })
    return await result.evaluate(READ_REPORT)
  }

  return {
    async check(source) {
      const given =
        typeof source === 'string'
          ? source
          : {
              name: source.name,
              mimeType: 'application/octet-stream',
              buffer: Buffer.from(source.bytes),
            }
      await page.getByLabel(/^Drop a file here/).setInputFiles(given)
      return await report()
    },
    async expect(demands, fileOf) {
      const pcrs = Object.entries(demands.pcrs ?? {}).map(([index, hex]) => `PCR${index}=${hex}`)
      await files('Signed releases', demands.releases?.map(fileOf) ?? [])
      await text('Keys that sign releases', demands.release_keys?.join('\n') ?? '')
      await text('How many of them must have signed', String(demands.release_signers ?? ''))
      await text('Or measurements', pcrs.join('\n'))
      await tick('Accept any code in the enclave', demands.any_measurement ?? false)
      await tick(
        'Accept an enclave in debug mode, whose memory its host can read',
        demands.allow_debug ?? false,
      )
      await text('Digests', demands.configurations?.join('\n') ?? '')
      await files('Trust these roots, instead of AWS’s', demands.roots?.map(fileOf) ?? [])
      await text(
        'Providers in TEEs',
        demands.policy === undefined ? '' : providersIn(fileOf(demands.policy)),
      )
      await files('Certificate revocation lists', demands.crls?.map(fileOf) ?? [])
      for (const outcome of ['client_disconnected', 'upstream_error'])
        await tick(
          `Accept answers that ended as ${outcome}`,
          demands.allow_outcomes?.includes(outcome) ?? false,
        )
      await files('Request', demands.request === undefined ? [] : [fileOf(demands.request)])
      await files('Answer', demands.answer === undefined ? [] : [fileOf(demands.answer)])
      await tick(
        'The call had an Idempotency-Key, so its stream may be a repetition',
        demands.idempotent ?? false,
      )
      const time = demands.historical ? 'own' : demands.at === undefined ? 'now' : 'given'
      await once('time', time, async () => {
        await page.getByLabel('When it must be valid').selectOption(time)
      })
      if (time === 'given') await text('That time', String(demands.at ?? ''))
      else before.delete('That time')
      await text('Its greatest age in seconds', String(demands.max_age ?? ''))
      await text('Nonce', demands.nonce === '' ? '0x' : (demands.nonce ?? ''))
    },
    async take(kind) {
      await once('kind', kind, async () => {
        await page.getByLabel('Treat it as').selectOption(kind)
      })
    },
    async askChain(url, confirmations) {
      await text('JSON-RPC endpoint', url)
      await text('Confirmations', String(confirmations ?? ''))
      await openForms()
      await page.getByRole('button', { name: 'Ask the chain' }).click()
      return await report()
    },
  }
}

function providersIn(file: string): string {
  return JSON.stringify(JSON.parse(readFileSync(file, 'utf8')).providers)
}

/** Opens a part of the page that is folded, as a reader does. */
export async function openDetails(page: Page, selector: string): Promise<void> {
  const part = page.locator(selector)
  if ((await part.getAttribute('open')) === null) await part.locator(':scope > summary').click()
  await page.locator(`${selector}[open]`).waitFor()
}

/** The members of a page element that are used here. */
type PageElement = {
  readonly textContent: string | null
  readonly classList: { contains(name: string): boolean }
  getAttribute(name: string): string | null
  querySelector(selector: string): PageElement | null
  querySelectorAll(selector: string): Iterable<PageElement>
}

/** Runs in the page. */
const READ_REPORT = (result: PageElement): PageReport => {
  const [verdict] = result.querySelectorAll('[data-verdict]')
  const named = (outcome: string) => [
    ...new Set(
      [...result.querySelectorAll(`[data-outcome="${outcome}"]:not([data-of] *)`)].map(
        (check) => check.getAttribute('data-check') ?? '',
      ),
    ),
  ]
  const sentence = result.querySelector('.sentence')?.textContent ?? verdict?.textContent ?? ''
  const code = /It was refused: (\w+)\./.exec(sentence)?.[1]
  return {
    verdict: (verdict?.getAttribute('data-verdict') ?? 'none') as PageReport['verdict'],
    sentence,
    failed: code === undefined ? named('failed') : [code],
    notChecked: named('not checked'),
    links: Object.fromEntries(
      [...result.querySelectorAll('[data-link]')].map((link) => [
        link.getAttribute('data-link'),
        ['holds', 'broken', 'open', 'void', 'unaccepted'].find((state) =>
          link.classList.contains(state),
        ) ?? '',
      ]),
    ),
  }
}
