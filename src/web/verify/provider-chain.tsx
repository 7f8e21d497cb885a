import type { Check } from '#attestation/finding.ts'
import { PROVIDER_NOT_SHOWN } from '#attestation/report/describe-provider.ts'
import { CheckList, TONE_OF } from '../kit/check-list.tsx'
import { State, type Tone } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { LINK_TONES, LINK_WORDS, viewVoid } from './chain-picture.tsx'
import {
  isProviderCheck,
  type ProviderLink,
  providerLinks,
  type ReportOfBoth,
} from './provider-links.ts'

/**
 * Shows the second chain, from the key that answered to the weights of the model. If the chain
 * depends on development roots, no link is green.
 */
export function ProviderChain({
  report,
  isDevelopment,
}: {
  readonly report: ReportOfBoth
  readonly isDevelopment: boolean
}) {
  const evidence = report.facts?.providerEvidence ?? null
  const isMarked = isDevelopment || evidence?.hasReplacedRoots === true
  const toneOf = (tone: Tone) => (isMarked && tone === 'good' ? 'development' : tone)
  const viewOf = (link: ProviderLink) => (check: Check<string>) =>
    link.state === 'void' && check.outcome === 'passed'
      ? viewVoid(check)
      : { tone: toneOf(TONE_OF[check.outcome]), word: check.outcome, about: '' }
  return (
    <section aria-labelledby="provider-chain">
      <h2 id="provider-chain">The provider’s machine, from key to weights</h2>
      {evidence !== null && !evidence.isAccepted && (
        <p>
          This is what the provider’s evidence says. It was not judged under a policy, so any code
          could have made it. Give a policy under “Your policy”, “Providers”.
        </p>
      )}
      <ol
        class={`chain ${isMarked ? 'development' : ''}`}
        aria-label="The links from key to weights"
      >
        {providerLinks(report).map((link) => (
          <li key={link.name} class={`link ${link.state}`} data-link={link.name}>
            <details open={link.state === 'broken'}>
              <summary>
                <span class="link-title">{link.title}</span>{' '}
                <State tone={toneOf(LINK_TONES[link.state])}>{LINK_WORDS[link.state]}</State>{' '}
                <span class="faint">
                  <OutsideText text={aboutOf(link)} isOneLine={true} shownMax={500} />
                </span>
              </summary>
              <div class="link-facts">
                <dl class="pairs">
                  {link.lines.map(([name, text]) => (
                    <Line key={name} name={name} text={text} />
                  ))}
                </dl>
                <CheckList checks={link.checks.filter(isOfBundle)} view={viewOf(link)} />
                <div data-of="provider">
                  <CheckList
                    checks={link.checks.filter((one) => !isOfBundle(one))}
                    view={viewOf(link)}
                  />
                </div>
              </div>
            </details>
          </li>
        ))}
      </ol>
      <p>No evidence of a provider shows:</p>
      <ul>
        {PROVIDER_NOT_SHOWN.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </section>
  )
}

function isOfBundle({ name }: Check<string>): boolean {
  return isProviderCheck(name)
}

function Line({ name, text }: { readonly name: string; readonly text: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>
        <OutsideText text={text} isOneLine={true} shownMax={500} />
      </dd>
    </>
  )
}

function aboutOf({ state, why, about }: ProviderLink): string {
  switch (state) {
    case 'holds':
      return about
    case 'void':
      return `depends on a step that does not hold: ${why}`
    case 'broken':
      return `failed: ${why}`
    case 'open':
      return `not checked: ${why}`
  }
}
