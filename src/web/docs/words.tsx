import { State } from '../kit/notices.tsx'
import { Prose } from './prose.tsx'
import { TERMS, VERDICTS } from './words.ts'

export function Words() {
  return (
    <>
      <h2 id="words">What the words mean</h2>
      <dl class="words">
        {VERDICTS.map(({ word, tone, means, next }) => (
          <div key={word} id={word.toLowerCase().replaceAll(' ', '-')}>
            <dt>
              <State tone={tone}>{word}</State>
            </dt>
            <dd>{means}</dd>
            <dd>
              <Prose text={next} />
            </dd>
          </div>
        ))}
      </dl>
      <h3>Terms</h3>
      <dl class="ways">
        {TERMS.map(({ term, means }) => (
          <div key={term}>
            <dt>{term}</dt>
            <dd>{means}</dd>
          </div>
        ))}
      </dl>
    </>
  )
}
