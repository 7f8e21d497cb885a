import './home.css'
import { FaultNotice } from '../kit/notices.tsx'
import { ServiceParts, useServiceState } from './service-state.tsx'

export function HomePage() {
  const { value, fault, reload } = useServiceState()
  return (
    <div class="home">
      <h1>Answers with evidence</h1>
      <p class="lead">
        An enclave passes each chat on to the model provider and signs question and answer. Anyone
        can check them, without trust in the operator.
      </p>
      <ul class="actions plain">
        <li>
          <a href="/verify">Check an answer</a>
          <p>
            Is it genuine? Who signed it, and when?{' '}
            <a href="/docs#not-checked">What “not checked” means</a>
          </p>
        </li>
        <li>
          <a href="/log">Look at the logs</a>
          <p>Which enclaves sign, since when, and how many answers each log has.</p>
        </li>
        <li>
          <a href="/docs">Call the API</a>
          <p>
            Samples for any OpenAI client. Or{' '}
            <a href="/console/playground">try it in the playground</a>
          </p>
        </li>
      </ul>
      <h2>This service</h2>
      <ServiceParts state={value} isLost={fault !== null} />
      {fault !== null && value === null && <FaultNotice fault={fault} onRetry={reload} />}
    </div>
  )
}
