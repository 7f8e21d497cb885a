import type { ComponentChildren } from 'preact'
import { State, type Tone } from '../../kit/notices.tsx'
import { OutsideText } from '../../kit/outside-text.tsx'
import { useNarrow } from '../use-narrow.ts'
import type { EnclaveConnection } from './expected-panel.tsx'

const STATES: Readonly<Record<EnclaveConnection['kind'], readonly [Tone, string]>> = {
  none: ['open', 'not established'],
  connecting: ['open', 'asking'],
  ready: ['good', 'established'],
  refused: ['bad', 'refused'],
  failed: ['bad', 'failed'],
}

function stateOf(connection: EnclaveConnection): readonly [Tone, string] {
  return connection.kind === 'ready' && connection.isDevelopment
    ? ['development', 'development only']
    : STATES[connection.kind]
}

/**
 * The panel beside the conversation. On a narrow screen, one line shows the enclave and its state,
 * and the rest is folded.
 */
export function WhoAnswers({
  model,
  connection,
  children,
}: {
  readonly model: string
  readonly connection: EnclaveConnection
  readonly children: ComponentChildren
}) {
  const isFolded = useNarrow()
  const [tone, words] = stateOf(connection)
  if (!isFolded)
    return (
      <section class="who" aria-labelledby="who-heading">
        <div class="heading-row">
          <h2 id="who-heading">Who answers</h2>
          <State tone={tone}>{words}</State>
        </div>
        {children}
      </section>
    )
  return (
    <details class="who card">
      <summary>
        Who answers:{' '}
        <OutsideText text={model === '' ? 'no model' : model} isOneLine={true} shownMax={40} />{' '}
        <State tone={tone}>{words}</State>
      </summary>
      {children}
    </details>
  )
}
