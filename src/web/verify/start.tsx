import './verify.css'
import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentPolicy } from './development-policy.ts'
import { fillInWorker } from './start-worker.ts'
import { VerifyPage } from './verify-page.tsx'

void takeDevelopmentPolicy(fillInWorker).then(() => showPage(<VerifyPage />))
